"""`everynet predict`: ask a trained network about files; one line of JSON for each input."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everynet.cli.resume import add_run

if TYPE_CHECKING:
    from torch import Tensor

    from everynet.types import Spec

HELP = "ask a trained network about files; JSON lines out"
AT_ONCE = 256
STARTS = {".npy": b"\x93NUMPY", ".npz": b"PK", ".png": b"\x89PNG", ".jpg": b"\xff\xd8"}
"""How files begin: standard input has no name that would tell what it is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run and inputs."""
    add_run(parser)
    parser.add_argument(
        "inputs", metavar="INPUT", nargs="+", help="files, folders, or - for standard input"
    )


def main(arguments: argparse.Namespace) -> int:
    """Print one object for each input."""
    import torch

    from everynet.catalog import of_run
    from everynet.job import read_json
    from everynet.runs import load
    from everynet.types import UserError

    recipe = of_run(arguments.run, arguments.file)
    spec = read_json(Path(arguments.run) / "spec.json").get("spec")
    if not hasattr(recipe, "predict") or not isinstance(spec, dict) or "kind" not in spec:
        raise UserError(f"{recipe.name} does not predict from files")
    model = load(recipe, arguments.run)
    names, inputs = read(arguments.inputs, spec)
    with torch.no_grad():
        for start in range(0, len(names), AT_ONCE):
            chunk = slice(start, start + AT_ONCE)
            answers = recipe.predict(model, _typed(inputs[chunk], model), spec)
            for name, answer in zip(names[chunk], answers, strict=True):
                print(json.dumps({"input": name, **answer}, allow_nan=False))
    return 0


def read(inputs: Sequence[str], spec: Spec) -> tuple[list[str], Tensor]:
    """The inputs with a name for each row; `-` stands for a file on standard input."""
    import tempfile

    from everynet.data import labelled
    from everynet.types import UserError

    if "-" not in inputs:
        return labelled(inputs, spec)
    if inputs.count("-") > 1:
        raise UserError("- must stand for standard input once: it can be read only once")
    with tempfile.TemporaryDirectory() as folder:
        content = sys.stdin.buffer.read()
        usual = ".csv" if spec["kind"] == "table" else ".png"
        suffix = next((end for end, start in STARTS.items() if content.startswith(start)), usual)
        path = Path(folder) / f"input{suffix}"
        path.write_bytes(content)
        try:
            names, rows = labelled([str(path) if name == "-" else name for name in inputs], spec)
        except UserError as error:
            raise UserError(str(error).replace(str(path), "standard input")) from error
    return [name.replace(str(path), "-") for name in names], rows


def _typed(inputs: Tensor, model: object) -> Tensor:
    """Inputs in the precision of the network's weights."""
    from torch import nn

    weight = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if weight is None or not inputs.is_floating_point():
        return inputs
    return inputs.to(weight.dtype)
