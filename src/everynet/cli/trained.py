"""What `predict` and `sample` share: a trained run, where to compute, and where to write."""

from __future__ import annotations

import argparse
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everynet.runs.predict import Asked


def add_computing(parser: argparse.ArgumentParser, out: str) -> None:
    """Where to compute, how, and where to write."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp64"), default="fp32")
    parser.add_argument("--out", metavar="FILE|DIR", help=out)


def asked(arguments: argparse.Namespace, moved: str = "") -> Asked:
    """The run that a command names, whose data may have been moved."""
    from everynet.recipes.stored import of_run
    from everynet.runs.predict import Asked
    from everynet.runs.verbs import elsewhere

    recipe = of_run(arguments.run, arguments.file)
    recipe = elsewhere(recipe, arguments.run, moved) if moved else recipe
    return Asked.about(recipe, Path(arguments.run), arguments.device, arguments.precision)


@dataclass
class Out:
    """Where what a run makes is written."""

    out: str | None
    recipe: str
    _made: list[Path] = field(default_factory=list)
    _stems: dict[str, str] = field(default_factory=dict)

    def stem(self, name: str) -> str:
        """What files made of an input are called: its own name, told apart from its like."""
        if name not in self._stems:
            _, _, row = name.rpartition(":")  # of a file that holds many
            own = Path(name).stem + (f"-{row}" if row.isdecimal() else "")
            plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in own)
            taken, number, found = set(self._stems.values()), 2, plain
            while found in taken:
                found, number = f"{plain}-{number}", number + 1
            self._stems[name] = found
        return self._stems[name]

    def place(self, name: str) -> Path:
        """Where something that was made is to be written: --out, or a folder of its own."""
        from everynet.system import files

        if self.out and Path(self.out).suffix and not Path(self.out).is_dir():
            files.make_folder(Path(self.out).absolute().parent)
            first = not self._made
            self._made.append(Path(self.out))
            return Path(self.out) if first else Path(self.out).with_name(f"{name}")
        if not self._made:
            folder = Path(self.out or f"{self.recipe}-{secrets.token_hex(3)}")
            files.make_folder(folder.absolute())
            self._made.append(folder)
        return self._made[0] / name
