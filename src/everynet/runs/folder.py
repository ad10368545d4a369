"""The JSON files of a run folder: what they say of the recipe, of the machine and of the data."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import everynet
from everynet.data.dataset import Data, Spec
from everynet.data.paths import absolute
from everynet.data.texts.tokens import KINDS
from everynet.recipes.recipe import Fitting, Recipe, require_returned
from everynet.recipes.run_names import is_run
from everynet.recipes.settings import override, settings
from everynet.recipes.stored import FORMAT, check_format, make_recipe, read_run_files
from everynet.recipes.sweep import Sweep
from everynet.recipes.trained import Trained
from everynet.recipes.training import Training
from everynet.runs.published_folder import with_published
from everynet.system.errors import Failure, UserError
from everynet.system.manifest import canonical, digest, read_json
from everynet.system.sources import Source, note
from everynet.system.user_files import place
from everynet.training.device import PRECISIONS, Setup, choose, denormals_flushed, describe

MOST_THREADS = 64  # a core, of a run that began on a larger machine
VERSIONS = ("torch", "numpy", "numba", "safetensors", "scikit-learn", "matplotlib")


@dataclass(frozen=True)
class RunFolder:
    """What the JSON files of a run folder say, read at once and checked."""

    path: Path
    recipe: Recipe
    environment: Mapping[str, Any]
    spec: Spec
    digest: str
    """SHA-256 of the data."""


def open_run(folder: str | Path, file: str | Path | None = None) -> RunFolder:
    """Read a run folder; `file` is the file of its recipe, where that is not of the zoo."""
    path = Path(folder)
    names = ("recipe.json", "environment.json", "spec.json")
    stored, where, known = read_run_files(path, *names).values()
    recipe = make_recipe(stored, path / "recipe.json", file)
    _check_environment(where, path)
    _check_spec(known, path)
    return RunFolder(path, recipe, where, known["spec"], known["digest"])


# ------------------------------------------------------------------------------------- recipe.json


def resolve(recipe: Recipe) -> Recipe:
    """The recipe with what each run it was given holds now, and with absolute paths."""
    held: dict[str, Any] = {}
    for name, value in settings(recipe).items():
        if isinstance(value, Trained) and value:
            held[name] = value.resolved(name)
        elif isinstance(value, Path) and value != Path():
            held[name] = value.absolute()
        elif isinstance(value, str) and name in recipe.sources:
            held[name] = absolute(value)
    if isinstance(recipe, Sweep):
        held["base"] = resolve(recipe.base)
    return with_vocabulary(with_published(replace(recipe, **held)))


def with_vocabulary(recipe: Recipe) -> Recipe:
    """The recipe with the run or the published file whose vocabulary it takes, if any.

    `tokens` may name one. A recipe of text that starts from a run takes the vocabulary of that one,
    unless `tokens` or `vocabulary` was given.
    """
    tokens, start = getattr(recipe, "tokens", None), getattr(recipe, "start", Trained())
    held: dict[str, Any] = {}
    if isinstance(tokens, str) and tokens not in KINDS and _holds_vocabulary(Path(tokens)):
        held = {"tokens": str(Path(tokens).absolute())}
    elif tokens in KINDS and start and not {"tokens", "vocabulary"} & {*recipe.settings_given()}:
        known = "tokens" in (start.described() or {})
        held = {"tokens": str(Path(start.path).absolute()), "vocabulary": 0} if known else {}
    return replace(recipe, **held)


def _holds_vocabulary(path: Path) -> bool:
    return is_run(path) or os.path.isfile(path)  # which never raises


def takes_vocabulary(recipe: Recipe) -> bool:
    """Whether a recipe is given a vocabulary, of a run or a file, which may have gone since."""
    path = Path(str(getattr(recipe, "tokens", "")))
    return path.is_absolute() and (_holds_vocabulary(path) or not path.exists())


def read_dataset(recipe: Training[Any, Any] | Fitting[Any], folder: Path = Path()) -> Data:
    """The data of a recipe; once a run has begun, what it took from others is in its own folder."""
    begun = folder != Path() and (folder / "spec.json").exists()
    start = getattr(recipe, "start", Trained())
    own: dict[str, Any] = {}
    if begun and start:
        own["start"] = replace(start, path=str(folder.absolute()), sha256="")
    if not takes_vocabulary(recipe):
        data = replace(recipe, **own).dataset()
        require_returned(recipe, "dataset", data, Data, "a Data, such as load(...) makes")
        return data
    if begun:
        own["tokens"] = str(folder.absolute())
    data = replace(recipe, **own).dataset()
    known = {name: data.spec[name] for name in ("tokens", "target_tokens") if name in data.spec}
    note(f"vocabulary of {recipe.tokens}", digest(canonical(known)))  # type: ignore[union-attr]  # seen
    return data


@contextmanager
def naming_paths_as_typed(typed: Recipe, recipe: Recipe) -> Iterator[None]:
    """What is wrong with a path is said of it as the user wrote it."""
    try:
        yield
    except UserError as error:
        line = str(error)
        for name, value in _paths(typed).items():
            whole = _paths(recipe)[name]
            both = zip([whole, *whole.split(",")], [value, *value.split(",")], strict=False)
            for full, mine in both:
                line = line.replace(full, str(Path(mine))) if full != mine else line
        error.args = (line,)
        raise


def _paths(recipe: Recipe) -> dict[str, str]:
    """Settings that are paths, or may be, as text."""
    if isinstance(recipe, Sweep):
        return _paths(recipe.base)
    return {
        name: str(value)
        for name, value in settings(recipe).items()
        if isinstance(value, Path | Trained)
        or name in recipe.sources
        or (name == "tokens" and value not in KINDS)
    }


def with_data(recipe: Recipe, data: str) -> Recipe:
    """The recipe with other data, or the same in another place; of a sweep in all of its cells."""
    if isinstance(recipe, Sweep):
        base = override(recipe.base, {"data": data})
        return replace(recipe, base=base)  # type: ignore[arg-type]  # of the class it was
    return override(recipe, {"data": data})


def settings_without_places(recipe: Recipe, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as recipe.json has them, but for where data, files and runs are.

    What these hold is noted by its SHA-256 in spec.json, and compared there.
    """
    mine = settings(recipe)
    places = {n for n, v in mine.items() if isinstance(v, Path) or n in recipe.sources}
    kept = {name: value for name, value in stored.items() if name not in places}
    return {n: v.get("sha256") if isinstance(v, dict) else v for n, v in kept.items()}


@contextmanager
def explaining_misfit(recipe: Recipe, folder: Path) -> Iterator[None]:
    """What fails within, given what a run folder holds, is one line: the two do not fit.

    A folder may come from anyone, and its checksums hold whatever its maker wrote.
    """
    try:
        yield
    except (Failure, OSError):
        raise
    except Exception as error:
        if place(error):
            raise  # a mistake in the user's own file, whose line the message names
        line = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(
            f"what {folder} holds does not fit {recipe.name}, because another version made it or "
            f"it was changed: {line:.200}; run the recipe anew (--debug shows where it failed)"
        ) from error


# -------------------------------------------------------------------------------- environment.json


def describe_environment(setup: Setup, processes: int) -> dict[str, Any]:
    """The machine, the versions and the way of computing: what environment.json holds."""
    return {
        "format": FORMAT,
        "everynet": everynet.__version__,
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS},
        "platform": platform.platform(),
        "device": setup.named,
        "device_name": describe(setup.device),
        "precision": setup.precision,
        "compile": setup.compile,
        "threads": setup.threads,
        "processes": processes,
        "denormals_flushed": denormals_flushed(),
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def read_environment(folder: Path) -> dict[str, Any]:
    """environment.json of a run folder, if the folder has the form that is written today."""
    where = read_json(folder / "environment.json")
    check_format(where, folder)
    _check_environment(where, folder)
    return where


def _check_environment(where: Mapping[str, Any], folder: Path) -> None:
    for name, wanted, fits in _ENVIRONMENT:
        if not fits(where.get(name)):
            raise UserError(
                f"{folder / 'environment.json'} is damaged: {name} ({where.get(name)!r:.40}) must "
                f"be {wanted}"
            )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_lines(value: object) -> bool:
    return isinstance(value, list) and len(value) <= 1_000 and all(map(_is_text, value))


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 1 <= value <= most


_ENVIRONMENT: tuple[tuple[str, str, Callable[[object], bool]], ...] = (
    ("threads", "a whole number from 1 to 4,096", lambda value: _is_count(value, 4_096)),
    ("processes", "a whole number from 1 to 65,536", lambda value: _is_count(value, 65_536)),
    ("precision", f"one of {', '.join(PRECISIONS)}", lambda value: value in PRECISIONS),
    ("compile", "true or false", lambda value: isinstance(value, bool)),
    ("versions", "an object", lambda value: isinstance(value, dict)),
    ("changes", "lines of text, if any", lambda value: value is None or _are_lines(value)),
    *((n, "text", _is_text) for n in ("everynet", "python", "device", "device_name", "begun")),
)
"""What each part of environment.json that is used must be."""


def read_setup(folder: Path, device: str = "") -> Setup:
    """How a run was computed, so that it goes on with the same bits; or on another device."""
    where = read_environment(folder)
    most = MOST_THREADS * (os.cpu_count() or 1)
    if where["threads"] > most:
        raise UserError(
            f"threads ({where['threads']}) of {folder / 'environment.json'} must be at most {most} "
            f"here, {MOST_THREADS} a core, because more may not be started; go on with the run on "
            "the machine where it began"
        )
    device, precision = device or where["device"], where["precision"]
    if precision == "tf32" and not device.startswith("cuda"):
        precision = "fp32"  # what tf32 stands for elsewhere
    return replace(choose(device, precision, where["compile"]), threads=where["threads"])


# --------------------------------------------------------------------------------------- spec.json


def describe_data(data: Data, sources: Iterable[Source]) -> dict[str, Any]:
    """What the data is and all that was read so far: what spec.json holds."""
    read = [{"name": source.name, "sha256": source.sha256} for source in sources]
    return {"spec": data.spec, "digest": data.digest, "read": read}


def read_spec(folder: Path) -> dict[str, Any]:
    """spec.json of a run folder: what the data is, and all that was read."""
    known = read_json(folder / "spec.json")
    _check_spec(known, folder)
    return known


def _check_spec(known: Mapping[str, Any], folder: Path) -> None:
    match known:
        case {"spec": dict(), "digest": str(), "read": list(read)} if all(map(_is_source, read)):
            return
    raise UserError(f"{folder / 'spec.json'} is damaged: it must hold spec, digest and read")


def _is_source(entry: object) -> bool:
    match entry:
        case {"name": str(), "sha256": str()}:
            return True
    return False


def as_json(value: object) -> bytes:
    """The bytes of a JSON file of a run folder."""
    return json.dumps(value, indent=1, allow_nan=False, default=os.fspath).encode() + b"\n"
