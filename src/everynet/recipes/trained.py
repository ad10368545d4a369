"""A run, or a file of weights, that predicts or is given to a recipe: `of=RUN`, `start=FILE`.

    trained = everynet.trained("runs/lenet-...")
    trained.predict(["one.png", "two.png"])    trained.evaluate((X, y))
    trained.model    trained.recipe    trained.spec

What it is worth follows from the SHA-256 of its weights: two paths with the same weights are equal,
and a run that is gone on with refuses weights that have changed since. Left empty it is false.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from everynet.recipes.run_names import run_folder

if TYPE_CHECKING:
    from torch import Tensor

    from everynet.data.dataset import Spec
    from everynet.recipes.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Trained:
    """Where the weights are, what they are, and the name of the recipe that made them.

    Recipe, network and description are read when they are first asked for, and kept.
    """

    path: str = ""
    sha256: str = ""
    made_by: str = ""
    file: str = field(default="", repr=False)
    """The file of the recipe, where that is not of the zoo and the caller trusts it."""

    written_as: ClassVar[str] = "a run folder or file"

    @staticmethod
    def from_text(text: str) -> Trained:
        """What a word on the command line means."""
        return Trained(str(run_folder(text))) if text else Trained()

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Trained:
        """What recipe.json holds of it."""
        parts = [stored.get(key) for key in ("path", "sha256", "recipe")]
        if not all(isinstance(part, str) for part in parts):
            raise ValueError(stored)
        return Trained(*map(str, parts))

    def __str__(self) -> str:
        return self.path

    def __bool__(self) -> bool:
        return bool(self.path)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trained):
            return NotImplemented
        if self.sha256 and other.sha256:
            return self.sha256 == other.sha256
        return self.path == other.path

    def __hash__(self) -> int:
        return hash(bool(self.path))

    def resolved(self, setting: str) -> Trained:
        """The same with its SHA-256 and recipe; refused where that is not what it was."""
        sha256, recipe = _runs("loading").hash_weights(self.path, setting)
        if self.sha256 not in ("", sha256):
            from everynet.system.errors import UserError  # noqa: PLC0415 -- only for a refusal

            raise UserError(
                f"{setting} ({self.path}) must hold the weights it held when the run began, but "
                f"their SHA-256 is now {sha256[:12]}..., not {self.sha256[:12]}...; start anew"
            )
        return replace(self, path=str(Path(self.path).absolute()), sha256=sha256, made_by=recipe)

    @property
    def plain(self) -> dict[str, str]:
        """What recipe.json holds of it."""
        return {"path": self.path, "sha256": self.sha256, "recipe": self.made_by}

    @cached_property
    def _run(self) -> Any:  # noqa: ANN401 -- from a room above
        return _runs("folder").open_run(self.path, self.file or None)

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run, with its settings."""
        found: Recipe = self._run.recipe
        return found

    @property
    def spec(self) -> Spec:
        """The description of the data that it was trained on."""
        found: Spec = self._run.spec
        return found

    @cached_property
    def model(self) -> Any:  # noqa: ANN401 -- a network, or an estimator
        """The trained network of the run, in eval mode; the same one each time."""
        return self.load()

    def load(self) -> Any:  # noqa: ANN401 -- a network, or an estimator
        """The trained network of the run as it was kept, for whoever changes it."""
        return _runs("loading").load_model(self._run)

    def _repr_html_(self) -> str:
        """What a notebook shows: where it is, what made it, and the pictures of the run."""
        from everynet.system.html import page, pictures_of  # noqa: PLC0415 -- only a notebook asks

        facts = {"recipe": self.made_by, "path": self.path, "SHA-256": self.sha256}
        facts = {name: text for name, text in facts.items() if text}
        return page("Trained", facts, pictures_of(Path(self.path)) if self else ())

    def predict(self, inputs: object, **settings: object) -> list[dict[str, Any]]:
        """What the network says of each input, one dictionary for each, as `everynet predict` does.

        Inputs are names of files and folders, an array, a frame or texts. Of a network that reads
        texts a string is one; a file is then named by a Path. `input` in an answer is the name of
        the file, or the number of the row.
        """
        found: list[dict[str, Any]] = self._predictor.predict(inputs, settings)
        return found

    def evaluate(self, data: object = "", **settings: object) -> dict[str, float]:
        """The metrics on labelled data, as `everynet evaluate` gives them.

        Data are a path, a known set, a frame whose target column is that of the run or named by
        `target=`, or (X, y); left out it is the test split of the run. Parameters of the recipe's
        `final`, such as `episodes=10`, are settings as well.
        """
        found: dict[str, float] = (
            _runs("evaluate").evaluate_run(self._run, data, **settings).metrics
        )
        return found

    def sample(self, **settings: object) -> Any:  # noqa: ANN401 -- as the recipe makes them
        """What a generative network makes, as `everynet sample` does: tensors, texts or a film.

        Settings such as `n=` are those that `everynet show` names, and `seed=`. Images have values
        from 0 to 1, and rows the units of the data.
        """
        return self._predictor.sample(settings)

    @cached_property
    def _predictor(self) -> Any:  # noqa: ANN401 -- from a room above
        return _runs("predict").Predictor.of(self._run)

    def tensors(self) -> dict[str, Tensor]:
        """The weights by name, of a run or of a safetensors file."""
        found: dict[str, Tensor] = _runs("loading").read_weights(self.path)
        return found

    def described(self) -> Spec | None:
        """The description of the data of a run, whatever its recipe; None of a file of weights."""
        found: Spec | None = _runs("loading").read_description(self.path)
        return found


def _runs(module: str) -> Any:  # noqa: ANN401 -- a module
    """Reading run folders is for `runs`, which lies above: found by its name."""
    return import_module(f"everynet.runs.{module}")
