"""Data whose training batches come from a `DataLoader`, treated as what was read ahead was."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from everynet.data.dataset import Batch, Data, Spec
from everynet.data.in_memory import Array
from everynet.data.kinds import Kind
from everynet.data.loader import Stream
from everynet.data.samplers import Loaded, Rows
from everynet.data.samples import class_numbers
from everynet.system.errors import UserError

SOME = 8
"""So many samples tell whether a recipe changes its training set after it was loaded."""


def streamed(data: Data, kind: Kind[Any], stream: Stream) -> Data:
    """The data, trained on batches of a loader: validation and test stay as they are."""
    spec = data.spec
    tasks = ("classification", "regression")
    if type(data.sampler) is not Rows or spec.get("task") not in tasks:
        raise UserError(
            f"data (a DataLoader) must be a Dataset or lists, because {kind.name} data has no rows "
            "of one shape with one target each"
        )
    treat: Callable[..., Any] = kind.convert if data.prepare is None else kind.stored

    def source() -> Generator[Batch]:
        with closing(stream.batches()) as batches:
            for x, y in batches:
                yield treat(x, spec), _targets(y, spec)

    x, y = stream.ahead
    assert y is not None  # both tasks have targets
    first = treat(x[:SOME], spec), _targets(y[:SOME], spec)
    loaded = Loaded(source, stream.steps, stream.batch_size, first)
    line = (
        f"batches of {stream.batch_size} come from the DataLoader: their order and random changes "
        "are its own, no function of seed and step, and a resume goes on with a new epoch"
    )
    return replace(data, sampler=loaded, notes=(*data.notes, line))


def _targets(y: Array | list[str] | None, spec: Spec) -> Tensor:
    """Targets of a batch: numbers, or the numbers of classes that have these names."""
    if spec["task"] == "regression":
        return torch.from_numpy(np.asarray(y, np.float64))
    words = [_class_name(label) for label in (y.tolist() if isinstance(y, np.ndarray) else y or ())]
    number = class_numbers(spec, "the DataLoader", words)
    return torch.tensor([number[word] for word in words])


def _class_name(label: object) -> str:
    """What a class is called that a number or a truth value stands for."""
    whole = isinstance(label, bool) or (isinstance(label, float) and label.is_integer())
    return str(int(label)) if whole else str(label)  # type: ignore[call-overload]  # a number
