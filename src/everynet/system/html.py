"""How results show themselves in a notebook: a small table, and the pictures inside of the HTML.

A folder may come from anyone: all text is escaped, only PNG files of a bounded size are shown, and
what cannot be read is left out. Nothing here raises: a notebook would show a traceback instead.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from everynet.system import files
from everynet.system.errors import Failure
from everynet.system.wording import shown

PICTURES, BYTES = 6, 4_000_000  # as many, and as many bytes of them, as a page can bear
PNG = b"\x89PNG\r\n\x1a\n"
CELL = "text-align:left;vertical-align:top;padding:2px 10px"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts, the first line of it bold where there are headings."""
    lines = [_line("th", headings)] if headings else []
    lines += [_line("td", row) for row in rows]
    return f'<table style="border-collapse:collapse">{"".join(lines)}</table>'


def _line(tag: str, cells: Sequence[str]) -> str:
    made = (f'<{tag} style="{CELL}">{escape(shown(cell))}</{tag}>' for cell in cells)
    return f"<tr>{''.join(made)}</tr>"


def page(title: str, facts: Mapping[str, object], pictures: Iterable[Path] = ()) -> str:
    """What a run says of itself: its name, named facts, and its first pictures."""
    rows = [(name, f"{value:.4g}" if isinstance(value, float) else str(value))
            for name, value in facts.items()]  # fmt: skip
    drawn, left = _pictures(pictures)
    more = f"<p>and {left} more in the folder</p>" if left else ""
    return f"<div><b>{escape(shown(title))}</b>{table((), rows)}{''.join(drawn)}{more}</div>"


def pictures_of(folder: Path) -> list[Path]:
    """The PNG files of a run folder, the learning curve last; none where it cannot be read."""
    try:
        found = [name for name in files.names(folder / "pictures") if name.endswith(".png")]
    except (Failure, OSError):
        return []
    found.sort(key=lambda name: name == "learning-curve.png")
    return [folder / "pictures" / name for name in found]


def _pictures(paths: Iterable[Path]) -> tuple[list[str], int]:
    """The first pictures as tags, and how many more there are."""
    drawn: list[str] = []
    room, left = BYTES, 0
    for path in paths:
        try:
            content = files.read(path, room) if len(drawn) < PICTURES else b""
        except (Failure, OSError):
            content = b""
        if not content.startswith(PNG):
            left += 1
            continue
        room -= len(content)
        name = escape(shown(path.stem))
        data = b64encode(content).decode()
        drawn.append(
            f'<div><img alt="{name}" title="{name}" style="max-width:100%;width:640px" '
            f'src="data:image/png;base64,{data}"/></div>'
        )
    return drawn, left
