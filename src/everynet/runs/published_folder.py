"""A folder of published files, in the layout of Hugging Face, that a training begins from.

    config.json                     the network and its sizes
    model.safetensors               its weights; or model.safetensors.index.json and its shards
    vocab.json + merges.txt, vocab.txt or tokenizer.json      the vocabulary of a text model

`everynet run gpt start=./gpt2/` reads them: sizes become fields of the recipe, the vocabulary its
`tokens`, and weights are found by the table `published` of the recipe. A folder may come from
anyone: nothing in it is executed, and what is damaged is refused in one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from everynet.data.texts.given import is_lower_case
from everynet.data.texts.tokens import KINDS
from everynet.recipes.recipe import Recipe
from everynet.recipes.run_names import is_run
from everynet.recipes.settings import setting_types
from everynet.recipes.training import Training
from everynet.runs import checkpoint
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.manifest import parsed
from everynet.system.wording import shown, written

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
SHARDS = 1000
"""Files of the largest published network."""


def is_published(path: Path) -> bool:
    """Whether a folder is no run of ours and holds published files, or means to."""
    names = (CONFIG, WEIGHTS, INDEX, PICKLE)
    return path.is_dir() and not is_run(path) and any((path / name).exists() for name in names)


def read_weights_files(folder: Path) -> dict[str, bytes]:
    """The bytes of the files of weights, by their names."""
    if (folder / WEIGHTS).exists():
        names = [WEIGHTS]
    elif (folder / INDEX).exists():
        names = _shards(folder / INDEX)
    elif (folder / PICKLE).exists():
        raise UserError(
            f"start ({folder}) must hold {WEIGHTS}, but has {PICKLE}, a pickle, which may run code "
            "when it is read; convert it where you trust it: AutoModel.from_pretrained(FOLDER)"
            ".save_pretrained(NEW) of transformers writes safetensors"
        )
    else:
        raise UserError(
            f"start ({folder}) must hold {WEIGHTS} beside {CONFIG}, the weights of the network; "
            "add it, or name another folder"
        )
    return {name: files.read(folder / name, checkpoint.WEIGHTS) for name in names}


def _shards(path: Path) -> list[str]:
    """The files that an index names, which must lie beside it."""
    index = _read_object(path).get("weight_map")
    names = {*index.values()} if isinstance(index, dict) and _are_names(index) else set[str]()
    if not 1 <= len(names) <= SHARDS:
        raise UserError(
            f"{path} must hold weight_map, the file beside it of each tensor, of at most {SHARDS} "
            "files; it is damaged"
        )
    return sorted(names)


def _are_names(index: Mapping[str, object]) -> bool:
    return all(
        isinstance(name, str) and name.endswith(".safetensors") and "/" not in name
        for name in index.values()
    )


def hash_files(folder: Path) -> str:
    """The SHA-256 of the weights; of several files that of one after the other."""
    found = sha256()
    for content in read_weights_files(folder).values():
        found.update(content)
    return found.hexdigest()


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors by their published names."""
    tensors: dict[str, Tensor] = {}
    for name, content in read_weights_files(folder).items():
        tensors |= checkpoint.weights_in(folder / name, content)
    return tensors


def _read_object(path: Path) -> dict[str, Any]:
    found = parsed(files.read(path), path)
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged: it must hold an object")
    return found


# ---------------------------------------------------------------------------------- the recipe


def with_published(recipe: Recipe) -> Recipe:
    """The recipe with the sizes and the vocabulary of the folder that it begins from, if any."""
    if not isinstance(recipe, Training) or not is_published(folder := Path(recipe.start.path)):
        return recipe
    if recipe.published is None:
        raise UserError(
            f"start ({folder}) must be a run folder or a .safetensors file, because "
            f"{recipe.name or type(recipe).__name__} has no table of names for published files; "
            "name another recipe, such as gpt"
        )
    if not (folder / CONFIG).exists():
        raise UserError(
            f"start ({folder}) must hold {CONFIG} beside {WEIGHTS}, the sizes of the network; add "
            "it, or name the file of weights to take what has the same name and shape"
        )
    sizes = recipe.published.settings(_read_object(folder / CONFIG), str(folder / CONFIG))
    types = setting_types(recipe)
    for name, value in sizes.items():
        given = getattr(recipe, name)
        if types[name] is int and type(value) is not int:
            raise UserError(f"{folder / CONFIG} ({name} {value}) must be whole; it is damaged")
        if name in recipe.settings_given() and given != value:
            raise UserError(
                f"{name} ({written(given)}) must be {written(value)}, because start ({folder}) was "
                "trained with that; leave it out"
            )
    known = {field.name for field in fields(recipe)}
    held: dict[str, Any] = {name: types[name](value) for name, value in sizes.items()}
    held |= _vocabulary_of(recipe, folder) if "tokens" in known else {}
    return replace(recipe, **{name: value for name, value in held.items() if name in known})


def _vocabulary_of(recipe: Training[Any, Any], folder: Path) -> dict[str, Any]:
    """The settings that say which vocabulary is taken; none where the user named another."""
    if getattr(recipe, "tokens", "") not in KINDS or "tokens" in recipe.settings_given():
        return {}
    path = find_vocabulary(folder)
    found: dict[str, Any] = {"tokens": str(path.absolute()), "vocabulary": 0}
    if "lower" not in recipe.settings_given():
        found["lower"] = is_lower_case(path)
    return found


def find_vocabulary(folder: Path) -> Path:
    """The file of the vocabulary in a folder."""
    for name, beside in (("vocab.json", "merges.txt"), ("vocab.txt", ""), ("tokenizer.json", "")):
        if (folder / name).is_file() and (folder / (beside or name)).is_file():
            return folder / name
    others = [p.name for p in sorted(folder.glob("*.model"))][:1]
    has = f"; {shown(others[0], 60)} is of a kind that is not read" if others else ""
    raise UserError(
        f"start ({folder}) must hold its vocabulary, because rows of weights are numbers of "
        f"tokens: vocab.json and merges.txt, vocab.txt or tokenizer.json{has}; add it, or name one "
        "with tokens=PATH"
    )
