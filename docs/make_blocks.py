"""Write docs/blocks.md: every block of the zoo and what it passes, from the tables of the sweep.

`tests/blocks.py` has the checks and their exceptions, `tests/test_blocks.py` runs them all. `make
docs` calls this; a test fails when the page is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import blocks  # noqa: E402 -- beside this folder

PAGE = ROOT / "docs" / "blocks.md"
HEAD = """\
# Blocks

<!-- Made by `make docs` from tests/blocks.py; do not edit. -->

`everynet.zoo.NAME` is a network, a layer, an estimator or a simulator, and `everynet.nn.NAME` a
layer that families share (nn). Each of the {networks}
modules of torch among the {all} blocks is made small and checked by name:

{checks}

A number stands for an exception, whose reason is below the table; a dash for a module that holds
state and is not called.
"""


def page() -> str:
    """The page as it should be."""
    found = blocks.files()
    networks = blocks.networks()
    checks = "\n".join(f"- {name}: {check.__doc__}" for name, check in blocks.CHECKS.items())
    lines = [HEAD.format(networks=len(networks), all=len(found), checks=checks)]
    lines += [f"| block | family | {' | '.join(blocks.CHECKS)} |"]
    lines += ["|---" * (2 + len(blocks.CHECKS)) + "|"]
    lines += [f"| {name} | {found[name].split('/')[-2]} | {marks(name)} |" for name in networks]
    lines += ["", "## Exceptions", ""]
    lines += [f"{n}. {e.check}: {e.reason}." for n, e in enumerate(blocks.EXCEPTIONS, 1)]
    lines += ["", "## Blocks that are no modules", ""]
    for what, names in blocks.NOT_NETWORKS.items():
        lines.append(f"- {what}: {', '.join(sorted(names))}.")
    return "\n".join(lines) + "\n"


def marks(name: str) -> str:
    """The cells of a row."""
    cells = []
    for check in blocks.CHECKS:
        exempt = blocks.exempt(check, name)
        passed = str(blocks.EXCEPTIONS.index(exempt) + 1) if exempt else "yes"
        cells.append(passed if check in blocks.checked(name) else "-")
    return " | ".join(cells)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
