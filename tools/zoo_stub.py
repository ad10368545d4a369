"""Write src/everynet/zoo/__init__.pyi: blocks and optimisers by name, for editors and mypy.

The names are those that the catalogue finds in the text of the files, so nothing of the zoo is
imported. `make docs` calls this; a test fails when the stub is stale.
"""

from __future__ import annotations

from pathlib import Path

from everynet.recipes import catalog
from everynet.zoo import OPTIMIZERS

STUB = Path(__file__).resolve().parent.parent / "src" / "everynet" / "zoo" / "__init__.pyi"
HEAD = "# Made by tools/zoo_stub.py; do not edit.\n# ruff: noqa: I001 -- sorted as text\n"


def made() -> str:
    """The stub as it should be."""
    families = sorted(path.parent.name for path in catalog.ZOO.glob("*/__init__.py"))
    lines = {f"from everynet.zoo import {name} as {name}" for name in families}
    for name, file in catalog.blocks().items():
        module = "everynet." + file.removesuffix(".py").replace("/", ".")
        lines.add(f"from {module} import {name} as {name}")
    lines |= {f"from {module} import {name} as {name}" for name, module in OPTIMIZERS.items()}
    return HEAD + "\n" + "\n".join(sorted(lines)) + "\n"


if __name__ == "__main__":
    STUB.write_text(made(), encoding="utf-8")
