"""What a source of tables or images gives: samples in three parts, as they were found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.split import PARTS, three
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

Pair = tuple[Tensor, Tensor]
Array = NDArray[Any]


class Counted(NamedTuple):
    """How often each level occurs in each channel of some images, and what else is known."""

    images: Tensor
    levels: Sequence[Sequence[int]]
    looks: Spec | None = None
    """Their brightness as a whole, see `brightness.py`; None where it was not kept."""


@dataclass(frozen=True)
class Samples:
    """Samples before standardising: images are 4-D, tables 2-D."""

    name: str
    """A known name or the path: the first word of an error message."""
    parts: Mapping[str, Pair]
    """(x, y) of "train", "valid" and "test"."""
    digest: str
    split: str
    """One sentence that says how the parts were made."""
    classes: tuple[str, ...] = ()
    """`classes[y]` names the class of y; empty where the target is a real number."""
    features: tuple[str, ...] = ()
    peak: float = 255.0
    """The value of white; images only."""
    task: str = "classification"
    advice: str = "add some"
    """What to do where a class has no training sample."""
    published: bool = False
    """Whether the test part ships with the set, so that all the rest may be trained on."""
    rows: Mapping[str, Tensor] = field(default_factory=dict)
    """For parts that were taken out of one table, where in it each sample is, from 0."""
    mapped: bool = False
    """Whether the samples are in a file, not in memory."""
    counted: Counted | None = None
    """The levels of the training images, where they are known."""
    columns: tuple[Spec, ...] = ()
    """How the columns of a table became its features, see `columns.py`."""
    described: tuple[str, ...] = ()
    """What each column of a table is and what becomes of it, in words."""
    moments: tuple[list[float], list[float]] | None = None
    """The means and deviations of columns that are standardised already; None: they are not."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else is worth saying of the files, by name."""
    remarks: tuple[str, ...] = ()
    """What a person should know before learning from them."""
    test_only: bool = False
    """Whether a network is only evaluated on them: nothing is learned, so that few are enough."""

    def __post_init__(self) -> None:
        for part in PARTS:
            x, y = self.parts[part]
            if len(x) == 0:
                raise UserError(f"{self.name}: the {part} part holds no sample; add some")
            if not _is_finite(x):
                raise UserError(f"{self.name}: x of {part} must be finite, but holds NaN or inf")
            if not _is_finite(y):
                raise UserError(f"{self.name}: y of {part} must be finite, but holds NaN or inf")
        if self.task == "classification" and not self.test_only:
            self._check_labels()

    def _check_labels(self) -> None:
        count = len(self.classes)
        if count < 2:
            raise UserError(
                f"{self.name}: {count} class ({', '.join(self.classes)}) is not enough to learn "
                "from; give at least 2"
            )
        for part, (_, y) in self.parts.items():
            if int(y.min()) < 0 or int(y.max()) >= count:
                wrong = int(y.min()) if int(y.min()) < 0 else int(y.max())
                raise UserError(
                    f"{self.name}: label {wrong} of y of {part} must be from 0 to {count - 1}"
                )
        found = torch.bincount(self.parts["train"][1], minlength=count)
        if not bool(found.all()):
            missing = self.classes[int((found == 0).nonzero()[0])]
            raise UserError(f"{self.name}: class {missing} has no training sample; {self.advice}")


def _is_finite(x: Tensor) -> bool:
    """Whether it holds neither NaN nor infinity; looked at in pieces, which take little memory."""
    return not x.is_floating_point() or all(bool(each.isfinite().all()) for each in x.split(2**16))


def describe(
    samples: Samples, kind: str, shape: list[int], mean: list[float], std: list[float]
) -> Spec:
    """What is known of samples, as plain JSON: enough to build a network and to read inputs."""
    return {
        "name": samples.name,
        "kind": kind,
        "task": samples.task,
        "shape": shape,
        "classes": list(samples.classes),
        "features": list(samples.features),
        "mean": mean,
        "std": std,
        "split": samples.split,
    }


def describe_like(spec: Spec, samples: Any, shape: Sequence[int] | None = None) -> Spec:  # noqa: ANN401
    """The description of a run, for other samples; those of another shape or task are refused."""
    if shape is not None and list(shape) != spec["shape"]:
        its, wanted = ("x".join(map(str, sizes)) for sizes in (shape, spec["shape"]))
        raise UserError(
            f"{samples.name} (samples of {its}) must have the shape {wanted} of what was learned"
        )
    task = getattr(samples, "task", spec["task"])
    if task != spec["task"] and spec["task"] != "density":  # which is of samples without targets
        raise UserError(
            f"{samples.name} has targets for {task}, and the network learned {spec['task']}; give "
            "files of the same sort"
        )
    return {**spec, "name": samples.name, "split": samples.split}


def renumber(samples: Samples, spec: Spec) -> dict[str, Pair]:
    """The parts with the numbers that a run gave to its classes; a new class is refused."""
    if samples.task != "classification":
        return dict(samples.parts)
    number = class_numbers(spec, samples.name)
    of_run = torch.tensor([number.get(label, -1) for label in samples.classes])
    parts = {part: (x, of_run[y]) for part, (x, y) in samples.parts.items()}
    for part, (_, y) in parts.items():
        for row in (y < 0).nonzero()[:1, 0].tolist():
            label = samples.classes[int(samples.parts[part][1][row])]
            raise unknown_class(label, spec, samples.name)
    return parts


def known_classes(spec: Spec) -> list[str]:
    """The classes as files name them: a network that joins some has kept them as labels."""
    return list(spec["labels" if "labels" in spec else "classes"])


def class_numbers(spec: Spec, name: str, used: Iterable[str] = ()) -> dict[str, int]:
    """The number of each class that a run knows; one that is used and unknown is refused."""
    if not known_classes(spec):
        raise UserError(f"{name} has classes, and the network learned none; give other files")
    number = {label: number for number, label in enumerate(known_classes(spec))}
    for label in used:
        if label not in number:
            raise unknown_class(label, spec, name)
    return number


def unknown_class(label: str, spec: Spec, name: str) -> UserError:
    """A class of the files that a run does not know."""
    return UserError(
        f"{name}: class {shown(label, 60)} is none that the network learned"
        + nearest(label, known_classes(spec))
    )


def split_published(
    train: tuple[Array, Array], test: tuple[Array, Array], classes: tuple[str, ...]
) -> Samples:
    """Images of a set that ships with its own test part; a tenth of the rest is for validation."""
    (x, y), (test_x, test_y) = ((_tensor(a), _tensor(b)) for a, b in (train, test))
    rows = three(torch.zeros(len(y), dtype=torch.bool))
    return Samples(
        name="",
        parts={
            "train": (x[rows["train"]], y[rows["train"]]),
            "valid": (x[rows["valid"]], y[rows["valid"]]),
            "test": (test_x, test_y),
        },
        digest="",
        split="the test set is the one that ships with it; a tenth of the training set, by hash "
        "of the row number, is for validation",
        classes=classes,
        published=True,
    )


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.require(array, requirements=("C", "W")))
