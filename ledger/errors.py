"""What can go wrong with a ledger. Each text is one line that names the fix."""

from __future__ import annotations


class LedgerError(Exception):
    """The ledger cannot be read or written."""


class NightExists(LedgerError):
    """A new night was asked for in a folder that already holds one."""


class NoNight(LedgerError):
    """There is no ledger where one should be."""


class NightBusy(LedgerError):
    """Another living process writes this night."""


class LedgerFull(LedgerError):
    """The disk is full. The event was not written; all events before it are safe."""


class LedgerBroken(LedgerError):
    """The chain of lines does not hold: something else than a night changed the file."""


class BadLine(LedgerError):
    """One line is not what the ledger wrote there. The text says why, in words."""
