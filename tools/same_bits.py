"""Compare two versions of everynet bit by bit: weights and every number of metrics.jsonl.

    python tools/same_bits.py record OLD.json [NAME ...]       with the older version on the path
    python tools/same_bits.py compare OLD.json [NAME ...]      with the newer one

`record` runs every recipe with the settings that its `tiny()` gives and writes down those settings,
a SHA-256 of every saved tensor and the rows of metrics.jsonl. `compare` passes the very settings to
the newer version. Names that have changed between the two are mapped by tools/renamed.json.
Numbers that follow from a clock (names that end in seconds, and slopes of time) are not compared.
"""

import hashlib
import json
import re
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

import everynet

CLOCK = re.compile(r"(seconds|_ms|speed|per_second)$|^time_slope")
TABLE = Path(__file__).with_name("renamed.json")


def plain(value: Any) -> Any:
    """A setting as JSON."""
    return (
        list(value)
        if isinstance(value, tuple)
        else str(value)
        if not isinstance(value, int | float | str | bool)
        else value
    )


def tiny_settings(recipe: Any) -> dict[str, Any]:
    """The settings in which the small form of a recipe differs from it."""
    tiny = recipe.tiny()
    names = [f.name for f in fields(recipe) if f.metadata.get("setting", True)]
    facts = {"goal", "covers", "name", "changed", "explicit"}
    differ = [n for n in names if n not in facts and getattr(tiny, n) != getattr(recipe, n)]
    return {name: plain(getattr(tiny, name)) for name in differ}


def tensors(folder: Path) -> dict[str, str]:
    """A SHA-256 of every tensor and of every other value that a run saved, by file and name."""
    found = {}
    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118 -- it is no dict
                value = opened.get_tensor(name).contiguous()
                raw = value.view(torch.uint8) if value.dim() else value[None].view(torch.uint8)
                digest = hashlib.sha256(raw.numpy().tobytes()).hexdigest()
                found[f"{path.relative_to(folder)}:{name}"] = digest[:16]
    return found


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of every metrics.jsonl below a folder."""
    return {
        str(path.relative_to(folder)): [json.loads(line) for line in path.open()]
        for path in sorted(folder.rglob("metrics.jsonl"))
    }


def ran(recipe: Any) -> dict[str, Any]:
    """What a run of a recipe left."""
    with tempfile.TemporaryDirectory() as out:
        folder = everynet.run(recipe, out, device="cpu").folder
        return {"tensors": tensors(folder), "rows": rows(folder)}


def names(given: list[str]) -> list[str]:
    """The recipes that were named, or all."""
    if given:
        return given
    try:
        from everynet.recipes.catalog import entries
    except ImportError:  # as it was before the rooms
        from everynet.catalog import entries
    return [entry.name for entry in entries()[0]]


def record(path: Path, given: list[str]) -> None:
    """Run every recipe and write down what it left."""
    found = {}
    for name in names(given):
        begun = time.perf_counter()
        recipe = everynet.recipe(name)
        settings = tiny_settings(recipe)
        found[name] = {"settings": settings, **ran(everynet.recipe(name, **as_given(settings)))}
        print(f"{name}: {time.perf_counter() - begun:.1f} s", flush=True)
        path.write_text(json.dumps(found))


def as_given(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings from JSON as a recipe takes them."""
    return {n: tuple(v) if isinstance(v, list) else v for n, v in settings.items()}


def mapped(value: Any, table: dict[str, str]) -> Any:
    """JSON with names of metrics replaced, and numbers of a clock left out."""
    if isinstance(value, dict):
        kept = {n: v for n, v in value.items() if not CLOCK.search(n) and n != "said"}
        return {table.get(n, n): mapped(v, table) for n, v in kept.items()}
    return [mapped(v, table) for v in value] if isinstance(value, list) else value


def compare(path: Path, given: list[str]) -> int:
    """Run every recipe with the settings of the older version, and say what differs."""
    old, table, failed = json.loads(path.read_text()), json.loads(TABLE.read_text()), 0
    recipes = table["recipes"]
    for name in given or old:
        was = old[name]
        now = recipes.get(name, name)
        settings = {
            table["settings"].get(f"{now}.{n}", table["settings"].get(n, n)): v
            for n, v in was["settings"].items()
        }
        try:
            new = ran(everynet.recipe(now, **as_given(settings)))
        except Exception as error:
            print(f"{name}: FAILED {type(error).__name__}: {error}", flush=True)
            failed += 1
            continue
        metrics = {**table["metrics"], **table["metrics_of"].get(now, {})}
        here = {**table["tensors"], **table["tensors_of"].get(now, {})}
        left = {renamed(n, here): v for n, v in was["tensors"].items()}
        differ = [
            n for n in left.keys() | new["tensors"].keys() if left.get(n) != new["tensors"].get(n)
        ]
        numbers = mapped(was["rows"], metrics) == mapped(new["rows"], {})
        if differ or not numbers:
            failed += 1
            print(
                f"{name}: {len(differ)} of {len(left)} tensors differ, metrics "
                f"{'equal' if numbers else 'DIFFER'}; {sorted(differ)[:6]}",
                flush=True,
            )
        else:
            print(f"{name}: {len(left)} tensors and all metrics are equal", flush=True)
    print(f"{len(given or old) - failed} recipes equal, {failed} not")
    return int(failed > 0)


def renamed(name: str, table: dict[str, str]) -> str:
    """The name of a tensor now: parts of it, whole words between dots, are replaced."""
    file, _, key = name.partition(":")
    key = table.get(key, key)
    return f"{file}:{'.'.join(table.get(part, part) for part in key.split('.'))}"


if __name__ == "__main__":
    verb, path, *given = sys.argv[1:]
    sys.exit({"record": record, "compare": compare}[verb](Path(path), given) or 0)
