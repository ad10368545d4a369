"""What to try after a run, or to write for a verb that others have: commands that work.

The user's own settings are kept in them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING

from everynet.system.wording import written

if TYPE_CHECKING:
    from everynet.recipes.recipe import Recipe
    from everynet.recipes.training import Training
    from everynet.runs.gap import Gap
    from everynet.runs.job import Result


def suggestions(recipe: Recipe, result: Result, named: str) -> Iterator[tuple[str, str]]:
    """Commands that lead on from this run and what each does, the best first; at least three."""
    from everynet.recipes.catalog import is_path
    from everynet.recipes.recipe import Fitting
    from everynet.recipes.settings import settings
    from everynet.recipes.training import Training, implements

    values, folder = settings(recipe), str(result.folder)
    file = (named if named.endswith(".py") else named.rpartition(":")[0]) if is_path(named) else ""
    own = ["--file", file] if file else []
    if implements(recipe, "predict"):
        yield _command("predict", folder, "FILE", *own), "let the network predict from a file"
    if implements(recipe, "sample"):
        made = "a film of it" if recipe.writes == "film" else "let it generate samples"
        yield _command("sample", folder, *own), made
    if implements(recipe, "chat"):
        yield _command("chat", folder, *own), "talk with it, line by line"
    classifies_images = {"mirror", "class_weight"} <= values.keys()
    if classifies_images and Path(values["data"]).is_dir() and not named.startswith("photos"):
        command = _command("run", "photos", f"data={written(values['data'])}")
        yield command, "a network that suits the number of your images"
    if isinstance(recipe, Training):
        yield from _other_settings(recipe, named, result.gap)
    if isinstance(recipe, Training | Fitting) and "data" in values and "data" not in recipe.changed:
        yield _run_again(recipe, named, data="PATH"), "learn from files of your own"
    yield from _next_of_family(named)
    yield _command("show", named), "its equations, layers and settings"
    if recipe.kind in ("training", "experiment") and recipe.seed + 1 < 2**63:
        other = _run_again(recipe, named, seed=str(recipe.seed + 1))
        yield other, "the same with another seed"
    yield _command("runs", folder), "its settings and metrics"
    yield _command("draw", folder, *own), "its pictures again"


def command_meant(word: str, verb: str, after: Sequence[str]) -> str:
    """The command of ours, with this verb, that does what `everynet WORD AFTER` would."""
    run, *rest = after
    texts = [*takewhile(lambda one: "=" not in one and one[:1] != "-" and not exists(one), rest)]
    text, others = " ".join(texts), rest[len(texts) :]
    if word == "attack":
        return _command(verb, "pgd", f"of={run}", *rest).strip()
    if word == "complete" and text:
        return _command(verb, run, f"prompt={text}", *others).strip()
    if word == "translate" and (text or not rest):
        said = f"echo {shlex.quote(text)} | " if text else ""
        return said + _command(verb, run, "-", *others).strip()
    return _command(verb, *after).strip()


def _next_of_family(named: str) -> Iterator[tuple[str, str]]:
    """The next network of the same family of the zoo."""
    from everynet.recipes.catalog import entries

    found = entries()[0]
    for own in (entry for entry in found if entry.name == named):
        others = [e for e in found if e.family == own.family and e.file != own.file]
        later = [e for e in others if e.file > own.file]
        for entry in (later or others)[:1]:
            yield _command("run", entry.name), f"another of {own.family}"


def _other_settings(recipe: Training, named: str, gap: Gap | None) -> Iterator[tuple[str, str]]:
    """What may do better: the recipe's own rate, more decay after overfitting, a search."""
    if "lr" in recipe.changed:
        yield _run_again(recipe, named, lr=""), "the same with the learning rate of the recipe"
    elif gap is not None and gap.overfits and "weight_decay" not in recipe.changed:
        more = f"{max(10 * recipe.weight_decay, 0.01):g}"
        yield (
            _run_again(recipe, named, weight_decay=more),
            "it overfitted: let weights decay more; more data would help as well",
        )
    else:
        rates = ",".join(f"{factor * recipe.lr:.3g}" for factor in (0.3, 1, 3))
        command = _run_again(recipe, named, lr=rates).replace("everynet run", "everynet sweep", 1)
        yield command, "whether another learning rate does better"


def _run_again(recipe: Recipe, named: str, **changes: str) -> str:
    """The command of a run with some settings changed; one without a value is left out."""
    given = {key: written(getattr(recipe, key)) for key in recipe.settings_given()}
    if recipe.seed:
        given["seed"] = str(recipe.seed)
    given |= changes
    return _command("run", named, *(f"{key}={value}" for key, value in given.items() if value))


def _command(*words: str) -> str:
    return f"  everynet {shlex.join(words)}"
