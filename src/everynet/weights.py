"""A run, or a file of weights, that a recipe is given: `of=RUN`, `start=weights.safetensors`.

What it is worth follows from the SHA-256 of its weights: two paths with the same weights are equal,
and a run that is gone on with refuses weights that have changed since. Left empty it is false.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from everynet.recipes import Recipe
    from everynet.types import Spec


@dataclass(frozen=True, eq=False)
class Trained:
    """Where the weights are, what they are, and the name of the recipe that made them."""

    path: str = ""
    sha256: str = ""
    recipe: str = ""

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
        sha256, recipe = _catalog().weighed(self.path, setting)
        if self.sha256 not in ("", sha256):
            from everynet.errors import UserError  # noqa: PLC0415 -- only for a refusal

            raise UserError(
                f"{setting} ({self.path}) must hold the weights it held when the run began, but "
                f"their SHA-256 is now {sha256[:12]}..., not {self.sha256[:12]}...; start anew"
            )
        return replace(self, sha256=sha256, recipe=recipe)

    @property
    def source(self) -> Recipe:
        """The recipe of the run, with its settings."""
        found: Recipe = _catalog().of_run(self.path)
        return found

    @property
    def model(self) -> nn.Module:
        """The trained network of the run, in eval mode."""
        found: nn.Module = _catalog().load(self.path)
        return found

    @property
    def spec(self) -> Spec:
        """The description of the data that it was trained on."""
        found: Spec = _catalog().spec_of(self.path)
        return found

    def _repr_html_(self) -> str:
        """What a notebook shows: where it is, what made it, and the pictures of the run."""
        from everynet.notebook import page, pictures_of  # noqa: PLC0415 -- only a notebook asks

        facts = {"recipe": self.recipe, "path": self.path, "SHA-256": self.sha256}
        facts = {name: text for name, text in facts.items() if text}
        return page("Trained", facts, pictures_of(Path(self.path)) if self else ())

    def tensors(self) -> dict[str, Tensor]:
        """The weights by name, of a run or of a safetensors file."""
        found: dict[str, Tensor] = _catalog().weights(self.path)
        return found


def _catalog() -> Any:  # noqa: ANN401 -- a module
    """Turning a folder into a recipe is for the catalogue, which lies above: found by its name."""
    return import_module("everynet.catalog")
