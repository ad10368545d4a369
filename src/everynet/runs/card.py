"""card.md: what a run reached and what it was, in one page to read, to use and to repeat."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everynet.data.dataset import Spec
from everynet.metrics.meanings import explain_metric
from everynet.recipes.recipe import Recipe
from everynet.recipes.settings import settings
from everynet.recipes.sweep import Sweep
from everynet.recipes.training import implements
from everynet.runs.baselines import Baselines
from everynet.system.sources import Source
from everynet.system.wording import shown, written

CURVE = "learning-curve"
"""The picture that stands first."""
USE = "## How to use it"
"""What follows the pictures."""


def command(recipe: Recipe, file: str) -> str:
    """The command that repeats a run."""
    own = recipe.base.name if isinstance(recipe, Sweep) else recipe.name
    name = f"{file}:{own}" if file else own
    if isinstance(recipe, Sweep):
        return shlex.join(recipe.command(name))
    given = [f"{key}={written(getattr(recipe, key))}" for key in recipe.settings_given()]
    if recipe.seed:
        given.append(f"seed={recipe.seed}")
    return shlex.join(["everynet", "run", name, *given])


def describe_goal(recipe: Recipe, reached: bool | None) -> str:
    """The goal and whether it was reached, in words."""
    if reached is None and recipe.changed:
        return f"not checked: settings were changed ({', '.join(recipe.changed)})"
    if reached is None:
        return "none"
    return f"{recipe.goal}: {'reached' if reached else 'NOT reached'}"


def cell(text: object) -> str:
    """Text of any source as it stands in a table: one line, no markup, no column of its own."""
    return re.sub(r"[\\`|\[]|<(?=[\w/!?])", r"\\\g<0>", shown(text, 1000))


def code(text: str) -> str:
    """Text of any source as code in a table, which has no escapes but that of a column."""
    line = shown(text, 5000).replace("|", r"\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if "`" in line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def sampled_texts(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The text that a network made at each evaluation, as far as it makes any."""
    sign = " \N{DOWNWARDS ARROW WITH CORNER LEFTWARDS} "
    texts = [(row["step"], row["said"].replace("\n", sign)) for row in rows if "said" in row]
    if not texts:
        return []
    table = [f"| {step:,} | {cell(text)} |" for step, text in texts]
    return ["", "## Text that it made, by step", "", "| step | text |", "|---|---|", *table]


def order_metrics(recipe: Recipe, metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics with those of the goal first."""
    first = [goal.metric for goal in recipe.goals() if goal.metric in metrics]
    return {name: metrics[name] for name in dict.fromkeys([*first, *metrics])}


def describe_result(
    recipe: Recipe, metrics: Mapping[str, float], reached: bool | None, seconds: float
) -> str:
    """One sentence of what a run reached: the metrics of its goal, or else its first ones."""
    named = {goal.metric for goal in recipe.goals()} & {*metrics}
    ordered = order_metrics(recipe, metrics)
    said = ", ".join(f"{name} {ordered[name]:.4g}" for name in [*ordered][: len(named) or 3])
    of = "" if recipe.kind in ("experiment", "simulation") else " on the test split"
    goal = "" if reached is None else f" (goal {describe_goal(recipe, reached)})"
    return f"**{cell(said)}**{of}{cell(goal)}, in {seconds:,.0f} s."


def as_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text as a table of Markdown, the header first."""
    header, *others = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return [header, "|---" * len(rows[0]) + "|", *others]


def uses(recipe: Recipe, folder: str, file: str) -> list[str]:
    """Commands that use what was made."""
    given = {"predict": ["FILE"], "sample": [], "chat": [], "draw": []}
    verbs = [verb for verb in given if verb == "draw" or implements(recipe, verb)]
    own = ["--file", file] if file else []
    return [shlex.join(["everynet", verb, folder, *given[verb], *own]) for verb in verbs]


def pictures(captions: Mapping[str, str]) -> list[str]:
    """The lines that show pictures, each with its caption."""
    lines = []
    for name, caption in sorted(captions.items(), key=lambda one: one[0] != CURVE):
        lines += ["", f"![{caption}](pictures/{name}.png)", "", f"*{caption}*"]
    return lines


def with_pictures(text: str, captions: Mapping[str, str]) -> str:
    """A card with these pictures in place of its own; one without any place for them as it is."""
    head, use, rest = text.partition(f"\n\n{USE}\n")
    head = head.partition("\n\n![")[0]
    return "\n".join([head, *pictures(captions)]) + use + rest if use else text


def card(
    recipe: Recipe,
    *,
    spec: Spec,
    digest: str,
    where: Mapping[str, Any],
    metrics: Mapping[str, float],
    reached: bool | None,
    seconds: float,
    folder: str,
    file: str = "",
    parameters: int | None = None,
    read: Iterable[Source] = (),
    weights: str = "",
    notes: Iterable[str] = (),
    captions: Mapping[str, str] | None = None,
    class_table: Sequence[Sequence[str]] = (),
    baselines: Baselines | None = None,
    more: Iterable[str] = (),
) -> str:
    """The page: result, pictures, how to use it, metrics, settings, and all that it depends on.

    `read` is all that was read, the data included; `weights` says of which step they are, `notes`
    what a person should know of the data and of what came of it; `class_table` is a table of text,
    its header first;
    `more` is what an experiment says of its cells, or the text that a network made.
    """
    doc = (sys.modules[type(recipe).__module__].__doc__ or "").strip().partition("\n")[0]
    lines = [f"# {cell(recipe.name)}", ""]
    if baselines:
        lines += [part for line in baselines.headline() for part in (f"**{cell(line)}.**", "")]
    lines += [doc, ""]
    lines += [describe_result(recipe, metrics, reached, seconds)]
    lines += pictures(captions or {})
    lines += ["", USE, "", "```", *uses(recipe, folder, file), "```"]
    of = "" if recipe.kind == "experiment" else " on the test split"
    lines += ["", f"## Metrics{of}", "", "| metric | value | what it is |", "|---|---|---|"]
    lines += [
        f"| {cell(name)} | {value:.6g} | {cell(explain_metric(recipe.meanings, name))} |"
        for name, value in order_metrics(recipe, metrics).items()
    ]
    if class_table:
        lines += ["", "## Each class", "", *as_table(class_table)]
    if baselines:
        lines += ["", "## Beside it", "", *as_table(baselines.table()), ""]
        lines += [f"{cell(line)[:1].upper()}{cell(line)[1:]}." for line in baselines.notes()]
    lines += more
    lines += ["", "## Settings", "", "| setting | value |", "|---|---|"]
    lines += [f"| {name} | {cell(written(value))} |" for name, value in settings(recipe).items()]
    lines += ["", "## Data, device and versions", "", "| what | |", "|---|---|"]
    lines += [
        f"| data | {cell(spec.get('name', 'none'))}, SHA-256 `{digest or 'none'}` |",
        *(
            f"| read | {cell(s.name)}, SHA-256 {code(s.sha256)} |"
            for s in read
            if s.sha256 != digest
        ),
        f"| split | {cell(spec.get('split', 'none'))} |",
        *(f"| note | {cell(line)} |" for line in spec.get("remarks", ())),
        f"| seed | {recipe.seed} |",
        f"| goal | {cell(describe_goal(recipe, reached))} |",
    ]
    if parameters is not None:
        lines.append(f"| parameters | {parameters:,} |")
    if weights:
        lines.append(f"| weights | {cell(weights)} |")
    lines += [f"| note | {cell(note)} |" for note in (*notes, *where.get("changes", ()))]
    known = {"everynet": where["everynet"], "Python": where["python"], **where["versions"]}
    versions = ", ".join(f"{name} {version}" for name, version in known.items())
    lines += [
        f"| device | {cell(where['device_name'])}, {cell(where['precision'])}, "
        f"{where['threads']} thread(s), {where['processes']} process(es) |",
        f"| time | {seconds:.1f} s |",
        f"| versions | {cell(versions)} |",
        f"| begun | {cell(where['begun'])} |",
        f"| repeat with | {code(command(recipe, file))} |",
    ]
    return "\n".join(lines) + "\n"
