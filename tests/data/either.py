"""Tables and images through one door, as the tests of data were first written."""

from types import SimpleNamespace

import torch

from everynet.data import kinds, loading, sets
from everynet.data.download import store
from everynet.data.split import three

ADDED = sets._added
"""The sets that a test makes known."""


def load(data, **options):
    return loading.load(data, kind=("image", "table"), **options)


def find(data, **options):
    return loading.samples(data, kind=("image", "table"), **options)


def labelled(paths, spec):
    return kinds.named(spec["kind"]).read(paths, spec)


def inputs(paths, spec):
    return labelled(paths, spec)[1]


def real_set(name):
    """A set that ships with its test, its training rows in their own order."""
    samples = store.samples(store.named(name))
    (x, y), (more_x, more_y) = samples.parts["train"], samples.parts["valid"]
    rows = three(torch.zeros(len(y) + len(more_y), dtype=torch.bool))
    order = torch.cat([rows["train"], rows["valid"]]).argsort()
    test_x, test_y = samples.parts["test"]
    return SimpleNamespace(
        train_x=torch.cat([x, more_x])[order],
        train_y=torch.cat([y, more_y])[order],
        test_x=test_x,
        test_y=test_y,
        classes=samples.classes,
        digest=samples.digest,
        name=samples.name,
    )
