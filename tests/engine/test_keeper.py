"""What the keeper reads of processes that it did not start and knows nothing about: real ones."""

from __future__ import annotations

import os
import subprocess
import sys

from engine import keeper

# A name is any 15 bytes. A longer one is cut there, in the middle of a letter if need be; a bracket is no end of it.
NAMES = ("调优一整夜的进程".encode()[:14], b"a) R 1 (b", b"\xff\xfe")


def test_a_process_whose_name_is_no_text_is_a_process_like_any_other() -> None:
    """Seen: a night ended with a UnicodeDecodeError because somebody else's process had such a name."""
    for name in NAMES:
        code = f"open('/proc/self/comm', 'wb').write({name!r}); print('named', flush=True); input()"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdin is not None
        try:
            assert child.stdout.readline() == b"named\n"
            found = keeper.status(child.pid)
            assert found is not None and found[1] == os.getpid()
            assert keeper.descendants(os.getpid())[child.pid] == found[2]
            assert keeper.name(child.pid)
        finally:
            child.stdin.close()
            child.wait(timeout=10)
