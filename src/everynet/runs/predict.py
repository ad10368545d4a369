"""A trained run that is asked something: from inputs to answers, for the verbs and for Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from everynet.data.dataset import Spec
from everynet.data.in_memory import part
from everynet.data.kinds import Kind, named
from everynet.data.paths import kind as kind_of_path
from everynet.recipes.recipe import Fitting, Recipe
from everynet.recipes.training import Training
from everynet.runs.folder import read_spec
from everynet.runs.verbs import fitting, load
from everynet.system.errors import UserError
from everynet.system.seeds import mix
from everynet.system.values import typed, verb_arguments
from everynet.system.wording import shown, with_article
from everynet.training.device import Setup, choose

AT_ONCE = 256
"""Inputs that a network is asked about together."""


@dataclass
class Asked:
    """A run that is asked something."""

    recipe: Any  # a training or a fitting
    spec: Spec
    folder: Path
    setup: Setup

    @classmethod
    def about(
        cls, recipe: Recipe, folder: Path, device: str = "auto", precision: str = "fp32"
    ) -> Asked:
        """The run of a recipe, if it is of a kind that can be asked."""
        spec = read_spec(folder)["spec"]
        if not hasattr(recipe, "predict"):
            instead = "; name a cell of it" if recipe.kind == "experiment" else ""
            raise UserError(
                f"{recipe.name} is {with_article(recipe.kind)}: it neither predicts nor samples"
                + instead
            )
        return cls(recipe, spec, folder, choose(device, precision))

    def verb(self, name: str) -> Callable[..., Any]:
        """The recipe's own `sample` or `predict`, or one line that it has none."""
        if getattr(type(self.recipe), name) in (getattr(Training, name), getattr(Fitting, name)):
            what = {"sample": "generate samples", "predict": "predict from files"}[name]
            raise UserError(f"{self.recipe.name} does not {what}")
        method: Callable[..., Any] = getattr(self.recipe, name)
        return method

    def kind(self, verb: str) -> Kind[Any]:
        """The kind that reads what the network is asked and writes what it makes."""
        name = (self.recipe.writes if verb == "sample" else "") or self.spec.get("kind", "")
        if not name or not isinstance(name, str):
            raise UserError(f"{self.recipe.name} does not {verb}: its data is of no kind")
        return named(name)

    @cached_property
    def _model(self) -> Any:  # noqa: ANN401 -- a network or an estimator
        model = load(self.recipe, self.folder)
        if isinstance(model, nn.Module):
            model = model.to(device=self.setup.device, dtype=self.setup.dtype)
        return model

    def model(self) -> Any:  # noqa: ANN401 -- a network or an estimator
        """The trained network on its device."""
        return self._model

    def placed(self, inputs: Any) -> Any:  # noqa: ANN401 -- rows of a tensor, or a list
        """Inputs on the device, numbers in the precision of the network's weights."""
        if isinstance(inputs, Tensor):
            dtype = self.setup.dtype if inputs.is_floating_point() else inputs.dtype
            if self.recipe.kind == "fitting":
                return inputs
            return inputs.to(self.setup.device, dtype)
        return [self.placed(one) for one in inputs] if isinstance(inputs, list) else inputs

    def fitting(self) -> AbstractContextManager[None]:
        """What fails within is the fault of what the folder holds."""
        return fitting(self.recipe, self.folder)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Without gradients, in the precision that was asked for."""
        with torch.no_grad(), self.setup.autocast(), self.fitting():
            yield

    def answers(
        self, inputs: Sequence[Any] | Tensor, settings: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """What the network says of each input; and a warning where that is unlike all it knows."""
        model, kind = self.model(), self.kind("predict")
        for start in range(0, len(inputs), AT_ONCE):
            some = inputs[start : start + AT_ONCE]
            with self.computing():
                warnings = kind.outliers(some, self.spec)
                found = self.recipe.predict(model, self.placed(some), self.spec, **settings)
            for answer, warning in zip(found, warnings, strict=True):
                yield {**answer, "warning": warning} if warning else dict(answer)

    def made(self, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- by recipe
        """What the network makes; `seed` is that of the run where none is given."""
        make, left = self.verb("sample"), dict(settings)
        seed = typed("seed", left.pop("seed", self.recipe.seed), int)
        if not 0 <= seed < 2**63:
            raise UserError(f"seed ({seed}) must be at least 0 and below 2^63")
        given, model = verb_arguments(make, left), self.model()
        with self.computing():
            return make(model, self.spec, torch.Generator().manual_seed(mix(seed)), **given)

    # --------------------------------------------------------------------------- from Python

    def predict(self, inputs: object, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """One answer for each input: names of files, arrays, a frame or texts."""
        given, kind = verb_arguments(self.recipe.predict, settings), self.kind("predict")
        names, read = self._read(inputs, kind)
        answers = self.answers(read, given)
        return [
            {"input": name, **{key: self._plain(value, kind) for key, value in answer.items()}}
            for name, answer in zip(names, answers, strict=True)
        ]

    def sample(self, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- by recipe
        """What the network makes, in the units of its data: tensors or texts."""
        made = self.made(settings)
        with self.fitting():
            return self.kind("sample").to_data_units(made, self.spec)

    def _read(self, inputs: object, kind: Kind[Any]) -> tuple[Sequence[Any], Any]:
        """What is asked, with a name for each: of files theirs, of rows their numbers."""
        if isinstance(inputs, str) and kind.of_texts and _is_there(inputs):
            raise UserError(
                f"inputs ({shown(inputs, 60)}) may be a text or the name of a file; write "
                "[text], or Path(name)"
            )
        listed: Any = [inputs] if isinstance(inputs, str | Path) else inputs
        if _are_files(listed, kind):
            with self.fitting():
                return kind.read([str(one) for one in listed], self.spec)
        asked = part(listed, "inputs", advice="")
        with self.fitting():
            rows = kind.convert(asked, self.spec)
        return range(len(rows)), rows

    def _plain(self, value: Any, kind: Kind[Any]) -> Any:  # noqa: ANN401 -- as it came
        """An answer; a tensor that the verb would write is in the units of the data."""
        return kind.to_data_units(value[None], self.spec)[0] if hasattr(value, "shape") else value


def _are_files(inputs: object, kind: Kind[Any]) -> bool:
    """Whether what is asked about is named: by paths, or by strings where these are no texts."""
    if not isinstance(inputs, list | tuple) or not inputs:
        return False
    if not all(isinstance(one, str | Path) for one in inputs):
        return False
    return not kind.of_texts or any(isinstance(one, Path) for one in inputs)


def _is_there(name: str) -> bool:
    try:
        return bool(kind_of_path(Path(name)))
    except UserError:
        return False
