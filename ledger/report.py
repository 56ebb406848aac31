"""The morning's report, `report.html` and `report.md`: a function of the view, at any moment of a night."""

from __future__ import annotations

import os
import re
import tempfile
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ledger import words
from ledger.content import content
from ledger.errors import LedgerError
from ledger.view import NightView

TEMPLATES = Path(__file__).parent / "templates"
_LOOSE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # one inside a word is no markup


def write_report(view: NightView, night_dir: Path | str) -> tuple[Path, Path]:
    """Writes report.html and report.md in the night's folder, each whole or not at all, and returns their paths.
    Raises LedgerError (full disk, unwritable)."""
    folder = Path(night_dir)
    where = _from_here(folder)
    html, markdown = render_html(view, folder.name, where), render_markdown(view, folder.name, where)
    return _replace(folder / "report.html", html), _replace(folder / "report.md", markdown)


def render_html(view: NightView, night: str, where: str = "") -> str:
    """`where`: the folder as a command of the report names it; logs/NIGHT unless said."""
    template = _environment(html=True).get_template("report.html.j2")
    return template.render(content(view, night), where=where or f"logs/{night}")


def render_markdown(view: NightView, night: str, where: str = "") -> str:
    template = _environment(html=False).get_template("report.md.j2")
    return template.render(content(view, night), where=where or f"logs/{night}")


def _from_here(folder: Path) -> str:
    """Relative to the folder that the commands are given in, where it lies below it; nothing of this machine else."""
    try:
        return str(folder.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return ""


@cache
def _environment(html: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=html,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        clean=words.clean,
        sentence=words.sentence,
        cell=_cell,
        clock=words.clock_time,
        duration=words.duration,
        percent=words.percent,
    )
    return environment


_ESCAPED = (
    *(("\\", "\\\\"), ("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "\\`"), ("*", "\\*")),
    *(("~", "\\~"), ("](", "]\\("), ("]:", "]\\:")),  # struck out; links and pictures, which a viewer would fetch
)


def _cell(text: object) -> str:
    """Text for a Markdown table or line: nothing in it becomes markup or breaks the row."""
    plain = " ".join(words.clean(str(text)).split())
    for mark, instead in _ESCAPED:  # the backslash first: one before a bar would end the row's cell there
        plain = plain.replace(mark, instead)
    return _LOOSE_UNDERSCORE.sub(r"\\_", plain)


def _replace(path: Path, text: str) -> Path:
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise LedgerError(
            f"cannot write {path} ({error.strerror}): free some space or fix its rights, then "
            "`.venv/bin/python run_night.py report NIGHT` writes it again from the ledger"
        ) from None
    return path
