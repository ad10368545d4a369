"""What `predict` and `sample` share: a trained run, where to compute, and where to write."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everynet.data import Kind
    from everynet.device import Setup
    from everynet.types import Spec


def add_computing(parser: argparse.ArgumentParser, out: str) -> None:
    """Where to compute, how, and where to write."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp64"), default="fp32")
    parser.add_argument("--out", metavar="FILE|DIR", help=out)


@dataclass
class Asked:
    """A run that is asked something."""

    recipe: Any  # a training or a fitting
    spec: Spec
    folder: Path
    setup: Setup
    out: str | None
    _made: list[Path] = field(default_factory=list)
    _stems: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(arguments: argparse.Namespace) -> Asked:
        """The run that a command names."""
        from everynet.catalog import of_run
        from everynet.device import choose
        from everynet.folders import read_spec
        from everynet.types import UserError
        from everynet.words import with_article

        recipe, folder = of_run(arguments.run, arguments.file), Path(arguments.run)
        spec = read_spec(folder)["spec"]
        if not hasattr(recipe, "predict"):
            instead = "; name a cell of it" if recipe.kind == "experiment" else ""
            raise UserError(
                f"{recipe.name} is {with_article(recipe.kind)}: it neither predicts nor samples"
                + instead
            )
        setup = choose(arguments.device, arguments.precision)
        return Asked(recipe, spec, folder, setup, arguments.out)

    def verb(self, name: str) -> Callable[..., Any]:
        """The recipe's own `sample` or `predict`, or one line that it has none."""
        from everynet.recipes import Fitting, Training
        from everynet.types import UserError

        if getattr(type(self.recipe), name) in (getattr(Training, name), getattr(Fitting, name)):
            what = {"sample": "generate samples", "predict": "predict from files"}[name]
            raise UserError(f"{self.recipe.name} does not {what}")
        method: Callable[..., Any] = getattr(self.recipe, name)
        return method

    def kind(self, verb: str) -> Kind[Any]:
        """The kind that reads what the network is asked and writes what it makes."""
        from everynet.data.kinds import named
        from everynet.types import UserError

        name = (self.recipe.writes if verb == "sample" else "") or self.spec.get("kind", "")
        if not name or not isinstance(name, str):
            raise UserError(f"{self.recipe.name} does not {verb}: its data is of no kind")
        return named(name)

    def model(self) -> Any:  # noqa: ANN401 -- a network or an estimator
        """The trained network on its device."""
        from torch import nn

        from everynet.runs import load

        model = load(self.recipe, self.folder)
        if isinstance(model, nn.Module):
            model = model.to(device=self.setup.device, dtype=self.setup.dtype)
        return model

    def placed(self, inputs: Any) -> Any:  # noqa: ANN401 -- rows of a tensor, or a list
        """Inputs on the device, numbers in the precision of the network's weights."""
        from torch import Tensor

        if isinstance(inputs, Tensor):
            dtype = self.setup.dtype if inputs.is_floating_point() else inputs.dtype
            if self.recipe.kind == "fitting":
                return inputs
            return inputs.to(self.setup.device, dtype)
        return [self.placed(one) for one in inputs] if isinstance(inputs, list) else inputs

    def fitting(self) -> AbstractContextManager[None]:
        """What fails within is the fault of what the folder holds."""
        from everynet.runs import fitting

        return fitting(self.recipe, self.folder)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Without gradients, in the precision that was asked for."""
        import torch

        with torch.no_grad(), self.setup.autocast(), self.fitting():
            yield

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
        from everynet import files

        if self.out and Path(self.out).suffix and not Path(self.out).is_dir():
            files.make_folder(Path(self.out).absolute().parent)
            first = not self._made
            self._made.append(Path(self.out))
            return Path(self.out) if first else Path(self.out).with_name(f"{name}")
        if not self._made:
            folder = Path(self.out or f"{self.recipe.name}-{secrets.token_hex(3)}")
            files.make_folder(folder.absolute())
            self._made.append(folder)
        return self._made[0] / name
