"""Rewrite a run folder of format 4 with the names of format 5, so that it can be used again.

    python tools/rename_run.py FOLDER [TABLE.json]

Names of recipes, classes, settings, metrics and tensors are replaced by tools/renamed.json in
recipe.json, metrics.jsonl, ended.json and every checkpoint, of the run and of its cells; the folder
is sealed anew. A copy is rewritten: FOLDER is then the new one, and the old one is kept beside it
as FOLDER-format-4. Numbers stay the same to the bit.
"""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load, save

from everynet.recipes.stored import FORMAT
from everynet.runs import checkpoint
from everynet.runs.folder import as_json
from everynet.system import manifest
from everynet.system.errors import UserError, explain

TABLE = Path(__file__).with_name("renamed.json")
Table = Mapping[str, Mapping[str, Any]]


class Names:
    """What the names of one recipe are today."""

    def __init__(self, table: Table, recipe: str) -> None:
        self.recipe = table["recipes"].get(recipe, recipe)
        self._settings = table["settings"]
        of_recipe = table.get("classes_of", {}).get(self.recipe, {})
        self.classes: Mapping[str, str] = {**table.get("classes", {}), **of_recipe}
        self.recipes: Mapping[str, str] = table["recipes"]
        self.metrics = {**table["metrics"], **table["metrics_of"].get(self.recipe, {})}
        self.tensors = {**table["tensors"], **table["tensors_of"].get(self.recipe, {})}

    def setting(self, name: str) -> str:
        """A setting, of this recipe or of all."""
        return str(self._settings.get(f"{self.recipe}.{name}", self._settings.get(name, name)))

    def pair(self, text: str) -> str:
        """`lr=0.1`, or several of them between commas, as grids and cells are named."""
        parts = (part.partition("=") for part in text.split(","))
        return ",".join(f"{self.setting(name)}{equals}{value}" for name, equals, value in parts)

    def goal(self, text: str) -> str:
        """The metrics of a goal."""
        clauses = (clause.strip().split(" ", 1) for clause in text.split(" and ") if clause.strip())
        return " and ".join(f"{self.metrics.get(name, name)} {rest}" for name, rest in clauses)

    def tensor(self, name: str) -> str:
        """A tensor: what stands between two dots in its name, or words of that between strokes."""
        return ".".join(
            self.tensors.get(part) or "/".join(self.tensors.get(w, w) for w in part.split("/"))
            for part in name.split(".")
        )


def rename_recipe(stored: dict[str, Any], table: Table) -> dict[str, Any]:
    """recipe.json, and in a sweep that of the recipe that is swept."""
    base = stored.get("base")
    own, names = Names(table, stored["name"]), Names(table, (base or stored)["name"])
    settings = {names.setting(n): rename_run_in(v, own) for n, v in stored["settings"].items()}
    if base:
        settings["grid"] = [names.pair(entry) for entry in settings["grid"]]
    return {
        **stored,
        "name": own.recipe,
        "class": own.classes.get(stored["class"], stored["class"]),
        "goal": names.goal(stored["goal"]),
        "changed": [names.setting(name) for name in stored["changed"]],
        "settings": settings,
        **({"base": rename_recipe(base, table)} if base else {}),
    }


def rename_run_in(value: Any, names: Names) -> Any:
    """A setting; one that names a run also names the recipe of it."""
    if isinstance(value, dict) and "recipe" in value:
        return {**value, "recipe": names.recipes.get(value["recipe"], value["recipe"])}
    return value


def rename_log(content: bytes, names: Names) -> tuple[bytes, Callable[[int], tuple[int, str]]]:
    """metrics.jsonl, and where a mark in the old one is in the new one, with its SHA-256."""
    lengths, new = {0: 0}, b""
    old = 0
    for line in content.splitlines(keepends=True):
        row = {
            split: {names.metrics.get(n, n): v for n, v in values.items()}
            if isinstance(values, dict)
            else values
            for split, values in json.loads(line).items()
        }
        new += json.dumps(row).encode() + b"\n"
        old += len(line)
        lengths[old] = len(new)

    def mark(length: int) -> tuple[int, str]:
        return lengths[length], manifest.digest(new[: lengths[length]])

    return new, mark


def rename_keys(value: Any, names: Names) -> Any:
    """The names of tensors in what state.json holds."""
    match value:
        case {"tensor": str(key)} | {"array": str(key)} | {"scalar": str(key)}:
            return {next(iter(value)): names.tensor(key)}
        case dict():
            return {n: rename_keys(v, names) for n, v in value.items()}
        case list():
            return [rename_keys(one, names) for one in value]
    return value


def rename_bundle(path: Path, names: Names, mark: Callable[[int], tuple[int, str]]) -> None:
    """A checkpoint: its tensors, and what state.json says of them and of the log."""
    contents = checkpoint.read_bundle(path)
    for file in (checkpoint.MODEL, checkpoint.TENSORS):
        if file in contents:
            tensors = load(contents[file])
            contents[file] = save({names.tensor(n): t for n, t in tensors.items()})
    if checkpoint.STATE in contents:
        about = rename_keys(json.loads(contents[checkpoint.STATE]), names)
        if "optimizers" in about and "progress" in about:
            about["optimizers"] = {
                names.tensor(key): {names.tensor(n): memory for n, memory in group.items()}
                for key, group in about["optimizers"].items()
            }
            progress = about["progress"]
            progress["log_length"], progress["log_sha256"] = mark(progress["log_length"])
        else:
            about = {names.tensor(name): value for name, value in about.items()}
        contents[checkpoint.STATE] = manifest.canonical(about)
    shutil.rmtree(path)
    checkpoint.write_bundle(path, contents)


def rename_folder(folder: Path, table: Table) -> None:
    """One run folder, or one cell, where it is."""
    sealed = [name for name in manifest.SEALED if (folder / name).exists()]
    found = manifest.read_json_files(folder, sealed)
    stored, where = found["recipe.json"], found["environment.json"]
    if where.get("format") != FORMAT - 1:
        raise UserError(
            f"{folder} must be of format {FORMAT - 1}, and is of {where.get('format')}; "
            "only that one can be rewritten"
        )
    where["format"] = FORMAT
    found["recipe.json"] = rename_recipe(stored, table)
    names = Names(table, stored.get("base", stored)["name"])
    log, mark = rename_log((folder / "metrics.jsonl").read_bytes(), names)
    if ended := found.get("ended.json"):
        ended["log_length"], ended["log_sha256"] = mark(ended["log_length"])
        ended["test"] = {names.metrics.get(n, n): v for n, v in ended["test"].items()}
    contents = {name: as_json(value) for name, value in found.items()}
    for name, content in {**manifest.sealed(contents), "metrics.jsonl": log}.items():
        (folder / name).write_bytes(content)
    for step in sorted((folder / "checkpoints").glob("*[0-9]")):
        rename_bundle(step, names, mark)
    for cell in sorted((folder / "cells").glob("*")):
        rename_folder(cell, table)
        cell.rename(cell.with_name(names.pair(cell.name)) if "=" in cell.name else cell)


def rename_run(folder: Path, table: Table) -> Path:
    """Put the rewritten folder in the place of the old one, which is given back."""
    old = folder.with_name(f"{folder.name}-format-{FORMAT - 1}")
    beside = folder.with_name(f".{folder.name}-renaming")
    if old.exists():
        raise UserError(f"{old} must not exist, because the old run is kept there; move it away")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(folder, beside)
    try:
        rename_folder(beside, table)
    except BaseException:
        shutil.rmtree(beside)
        raise
    folder.rename(old)
    beside.rename(folder)
    return old


def main(words: list[str]) -> int:
    """Rewrite the folder that is named."""
    if len(words) not in (1, 2):
        print(__doc__)
        return 2
    table = json.loads(Path(words[1]).read_text() if words[1:] else TABLE.read_text())
    try:
        old = rename_run(Path(words[0]), table)
    except UserError as error:
        print(f"rename_run: {explain(error)[1]}", file=sys.stderr)
        return 2
    print(f"{words[0]} is of format {FORMAT} now; the old one is {old}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
