"""A run folder as something to be used: its recipe, model, weights and description."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from everynet.recipes.recipe import Recipe
from everynet.recipes.stored import of_run, read_stored
from everynet.recipes.trained import Trained
from everynet.runs import checkpoint
from everynet.runs.checkpoint import weights_in
from everynet.runs.folder import read_spec
from everynet.runs.predict import Asked
from everynet.runs.verbs import load as load_run
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import with_article


def load(folder: str | Path, file: str | Path | None = None) -> Any:  # noqa: ANN401 -- any model
    """The trained model of a run folder, ready to use."""

    return load_run(of_run(folder, file), Path(folder))


# ----------------------------------------------------------------------- a run that is given


def trained(folder: str | Path, file: str | Path | None = None) -> Trained:
    """A run, or a file of weights, to be asked or given to a recipe."""

    return Trained(str(folder), file=str(file or "")).resolved("trained")


def asked(recipe: Recipe, folder: str) -> Asked:
    """A run that is asked something, where `auto` says."""

    return Asked.about(recipe, Path(folder))


def network(recipe: Recipe, folder: str) -> Any:  # noqa: ANN401 -- a network or an estimator
    """The trained model of a run, which must have one."""

    if not hasattr(recipe, "predict"):
        raise UserError(
            f"{folder} is a run of {recipe.name}, {with_article(recipe.kind)}, which has no model; "
            "everynet.load gives its result"
        )
    return load_run(recipe, Path(folder))


def weighed(path: str, setting: str) -> tuple[str, str]:
    """The SHA-256 of the weights that a path leads to, and the name of the recipe of a run."""

    if not Path(path).exists():
        raise UserError(
            f"{setting} ({path}) must be a run folder or a .safetensors file: there is none"
        )
    name = read_stored(Path(path) / "recipe.json")["name"] if Path(path).is_dir() else ""
    return sha256(_weight_bytes(path, setting)).hexdigest(), name


def weights(path: str) -> dict[str, Any]:
    """The tensors that a path leads to, by name."""

    return weights_in(Path(path), _weight_bytes(path, "start"))


def _weight_bytes(path: str, setting: str) -> bytes:

    if Path(path).is_dir():
        read_stored(Path(path) / "recipe.json")
        return checkpoint.kept_weights(Path(path))
    if not Path(path).is_file() or Path(path).suffix != ".safetensors":
        raise UserError(
            f"{setting} ({path}) must be a run folder or a .safetensors file; "
            "safetensors.torch.save_file makes one of a state_dict"
        )
    return files.read(Path(path), checkpoint.WEIGHTS)


def spec_of(folder: str | Path) -> dict[str, Any]:
    """The description of the data of a run."""

    found: dict[str, Any] = read_spec(Path(folder))["spec"]
    return found
