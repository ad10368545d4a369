"""A run by its folder: the verbs, as `everynet.resume(folder)` has them, and its weights."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from everynet.data.dataset import Spec
from everynet.recipes.settings import override
from everynet.recipes.stored import of_run, read_stored
from everynet.recipes.trained import Trained
from everynet.runs import checkpoint, verbs
from everynet.runs.folder import RunFolder, open_run, read_spec
from everynet.runs.job import Result, job_class
from everynet.runs.log import Watch
from everynet.runs.published_folder import hash_files, is_published, read_tensors
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import with_article


def resume(
    folder: str | Path,
    file: str | Path | None = None,
    *,
    data: object = None,
    jobs: int = 1,
    show: bool = False,
    watch: Watch | None = None,
    **fields: object,
) -> Result:
    """Go on with a run; `steps=N` for longer, `file` for a recipe outside the zoo.

    `data` is where its data lies now, or that which was given in memory.
    """
    recipe = override(of_run(folder, file), fields)
    return verbs.resume(recipe, folder, data=data, jobs=jobs, show=show, watch=watch)


def draw(
    folder: str | Path, file: str | Path | None = None, *, data: object = None
) -> tuple[Path, ...]:
    """Draw the pictures of a run again; `data` as for `resume`."""
    return verbs.draw(of_run(folder, file), folder, data=data)


def load(folder: str | Path, file: str | Path | None = None) -> Any:  # noqa: ANN401 -- any model
    """The trained model of a run folder, in eval mode; `file` names a recipe outside the zoo."""
    run = open_run(folder, file)
    return job_class(run.recipe).load(run.recipe, run.path, run.spec)


def load_model(run: RunFolder) -> Any:  # noqa: ANN401 -- a network or an estimator
    """The trained model of a run, which must have one."""
    recipe = run.recipe
    if not hasattr(recipe, "predict"):
        raise UserError(
            f"{run.path} is a run of {recipe.name}, {with_article(recipe.kind)}, which has no "
            "model; everynet.load gives its result"
        )
    return job_class(recipe).load(recipe, run.path, run.spec)


def trained(folder: str | Path, file: str | Path | None = None) -> Trained:
    """A run that predicts, `trained(run).predict(X)`, or that a recipe takes: `of=trained(run)`."""
    return Trained(str(folder), file=str(file or "")).resolved("trained")


# ----------------------------------------------------------------------------------------- weights


def hash_weights(path: str, setting: str) -> tuple[str, str]:
    """The SHA-256 of the weights that a path leads to, and the name of the recipe of a run."""
    if not Path(path).exists():
        raise UserError(
            f"{setting} ({path}) must be a run folder or a .safetensors file: there is none"
        )
    if setting == "start" and is_published(Path(path)):
        return hash_files(Path(path)), ""
    name = read_stored(Path(path) / "recipe.json")["name"] if Path(path).is_dir() else ""
    return sha256(_read_bytes(path, setting)).hexdigest(), name


def read_weights(path: str) -> dict[str, Any]:
    """The tensors that a path leads to, by name."""
    if is_published(Path(path)):
        return read_tensors(Path(path))
    if Path(path).is_dir():
        read_stored(Path(path) / "recipe.json")
    return checkpoint.weights_in(Path(path), _read_bytes(path, "start"))


def read_description(path: str) -> Spec | None:
    """The description of the data of a run; published files and files of weights have none."""
    has_none = not Path(path).is_dir() or is_published(Path(path))
    return None if has_none else read_spec(Path(path))["spec"]


def _read_bytes(path: str, setting: str) -> bytes:
    if Path(path).is_dir():
        return checkpoint.kept_weights(Path(path))
    if not Path(path).is_file() or Path(path).suffix != ".safetensors":
        raise UserError(
            f"{setting} ({path}) must be a run folder or a .safetensors file; "
            "safetensors.torch.save_file makes one of a state_dict"
        )
    return files.read(Path(path), checkpoint.WEIGHTS)
