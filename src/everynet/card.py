"""card.md: what a run was, in one page that a person can read and repeat."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import everynet
from everynet.device import Setup, denormals_flushed, describe
from everynet.provenance import Source
from everynet.recipes import Recipe, telling
from everynet.settings import settings
from everynet.sweeps import Sweep
from everynet.types import Spec
from everynet.words import written

FORMAT = 4
"""What a run folder looks like; a folder of another format is refused."""
VERSIONS = ("torch", "numpy", "numba", "safetensors", "scikit-learn", "matplotlib")


def environment(setup: Setup, processes: int) -> dict[str, Any]:
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


def command(recipe: Recipe, file: str) -> str:
    """The command that repeats a run."""
    own = recipe.base.name if isinstance(recipe, Sweep) else recipe.name
    name = f"{file}:{own}" if file else own
    if isinstance(recipe, Sweep):
        return shlex.join(recipe.command(name))
    given = [f"{key}={written(getattr(recipe, key))}" for key in recipe.changed]
    if recipe.seed:
        given.append(f"seed={recipe.seed}")
    return shlex.join(["everynet", "run", name, *given])


def verdict(recipe: Recipe, reached: bool | None) -> str:
    """The goal and whether it was reached, in words."""
    if reached is None:
        why = f"settings changed: {', '.join(recipe.changed)}" if recipe.changed else "it has none"
        return f"no goal is claimed ({why})"
    return f"{recipe.goal}: {'reached' if reached else 'NOT reached'}"


def card(
    recipe: Recipe,
    *,
    spec: Spec,
    digest: str,
    where: Mapping[str, Any],
    metrics: Mapping[str, float],
    reached: bool | None,
    seconds: float,
    file: str = "",
    parameters: int | None = None,
    read: Iterable[Source] = (),
    weights: str = "",
    drawn: Collection[str] = (),
    more: Iterable[str] = (),
) -> str:
    """The page: data and its hash, settings, seed, metrics, device, versions, command, pictures.

    `read` is all that was read, the data included; `weights` says of which step they are;
    `more` is what an experiment says of its cells.
    """
    doc = (sys.modules[type(recipe).__module__].__doc__ or "").strip().partition("\n")[0]
    lines = [f"# {recipe.name}", "", doc, "", "| what | |", "|---|---|"]
    lines += [
        f"| data | {spec.get('name', 'none')}, SHA-256 `{digest or 'none'}` |",
        *(f"| read | {s.name}, SHA-256 `{s.sha256}` |" for s in read if s.sha256 != digest),
        f"| split | {spec.get('split', 'none')} |",
        f"| seed | {recipe.seed} |",
        f"| goal | {verdict(recipe, reached)} |",
    ]
    if parameters is not None:
        lines.append(f"| parameters | {parameters:,} |")
    if weights:
        lines.append(f"| weights | {weights} |")
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    lines += [
        f"| device | {where['device_name']}, {where['precision']}, {where['threads']} thread(s), "
        f"{where['processes']} process(es) |",
        f"| time | {seconds:.1f} s |",
        f"| versions | everynet {where['everynet']}, Python {where['python']}, {versions} |",
        f"| begun | {where['begun']} |",
        f"| repeat with | `{command(recipe, file)}` |",
    ]
    of = "" if recipe.kind == "experiment" else " on the test split"
    lines += ["", f"## Figures{of}", "", "| metric | value |", "|---|---|"]
    lines += [f"| {name} | {value:.6g} |" for name, value in metrics.items()]
    lines += more
    lines += ["", "## Settings", "", "| setting | value |", "|---|---|"]
    lines += [f"| {name} | {written(value)} |" for name, value in settings(recipe).items()]
    if shown := telling(recipe, drawn):
        lines += ["", "## Pictures"]
        for name, caption in shown.items():
            lines += ["", f"![{caption}](pictures/{name}.png)", "", f"*{caption}*"]
    return "\n".join(lines) + "\n"
