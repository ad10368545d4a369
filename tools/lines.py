"""Print the lines of source by room, and how many there are for each row of the curriculum shown.

    python tools/lines.py

`make check` ends with it: a budget is a signal, and this is where it is seen.
"""

import re
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "everynet"
ROOMS = (
    *("system", "kernels", "nn", "metrics", "plot", "data", "recipes", "training", "runs", "zoo"),
    *("autodiff", "cli"),
)
GROUND = ("system", "recipes", "training", "runs", "data", "plot", "cli")


def count(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def by_room() -> dict[str, int]:
    """Lines of each room, those of the top folder last."""
    lines = {room: sum(map(count, (SOURCE / room).rglob("*.py"))) for room in ROOMS}
    return {**lines, "everynet": sum(map(count, SOURCE.glob("*.py")))}


def rows_shown() -> tuple[int, int]:
    """Rows of the curriculum that are shown, and all of them, as docs/curriculum.md says."""
    page = (ROOT / "docs" / "curriculum.md").read_text(encoding="utf-8")
    found = re.search(r"(\d+) of (\d+) rows are shown", page)
    assert found is not None, "docs/curriculum.md says how many rows are shown"
    return int(found[1]), int(found[2])


def median_network() -> float:
    """The median length of a file with recipes."""
    files = (SOURCE / "zoo").glob("*/*.py")
    return statistics.median(
        count(p) for p in files if re.search(r"^RECIPES\b", p.read_text(), re.M)
    )


def main() -> None:
    """Print them."""
    rooms, (shown, rows) = by_room(), rows_shown()
    total = sum(rooms.values())
    print("lines of source: " + ", ".join(f"{name} {lines:,}" for name, lines in rooms.items()))
    print(
        f"{total:,} in all, {sum(rooms[name] for name in GROUND):,} of them in {' '.join(GROUND)}; "
        f"{shown} of {rows} rows are shown, {total / shown:.0f} lines a row; "
        f"a file with recipes has {median_network():.0f} (the median)"
    )


if __name__ == "__main__":
    main()
