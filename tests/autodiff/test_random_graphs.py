"""Random graphs agree with torch in value, gradient and Hessian-vector product."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import everynet.autodiff as ad
from tests.autodiff.graphs import LEAVES, OPERATIONS, Graph, Ours, Torch, grow, plans, tried

TOLERANCE = 1e-10


def agree(ours, theirs, what):
    error = np.abs(ours - theirs).max()
    assert error <= TOLERANCE * np.abs(theirs).max(), f"{what}: {error:.2e}"


def ours_and_torch(graph):
    """(values, total, gradients, Hessian-vector products) from each."""
    names = list(graph.leaves)
    vectors = [
        np.cos(np.arange(leaf.size) + 1.0).reshape(leaf.shape) for leaf in graph.leaves.values()
    ]

    xs = [ad.Var(leaf) for leaf in graph.leaves.values()]
    values, total = graph.run(Ours(), dict(zip(names, xs, strict=True)))
    total.backward(create_graph=True)
    first = [x.grad if x.grad is not None else ad.Var(np.zeros(x.shape)) for x in xs]
    along = sum(ad.sum(g * v) for g, v in zip(first, vectors, strict=True))
    for x in xs:
        x.grad = None
    along.backward()
    second = [x.grad if x.grad is not None else np.zeros(x.shape) for x in xs]
    ours = [v.val for v in values], total.val, [g.val for g in first], second

    ts = [torch.tensor(leaf, requires_grad=True) for leaf in graph.leaves.values()]
    values, total = graph.run(Torch, dict(zip(names, ts, strict=True)))
    first = torch.autograd.grad(
        total, ts, create_graph=True, allow_unused=True, materialize_grads=True
    )
    along = sum((g * torch.as_tensor(v)).sum() for g, v in zip(first, vectors, strict=True))
    second = torch.autograd.grad(along, ts, allow_unused=True, materialize_grads=True)
    theirs = tuple(
        [t.detach().numpy() for t in part]
        if isinstance(part, list | tuple)
        else part.detach().numpy()
        for part in (values, total, first, second)
    )
    return ours, theirs


def compare(graph):
    ours, theirs = ours_and_torch(graph)
    for a, b in zip(ours[0], theirs[0], strict=True):
        agree(a, b, "value")
    agree(ours[1], theirs[1], "total")
    agree(joined(ours[2]), joined(theirs[2]), "gradient")
    agree(joined(ours[3]), joined(theirs[3]), "Hessian-vector product")


def joined(arrays):
    """All leaves as one vector: by a leaf alone the gradient may be zero but for rounding."""
    return np.concatenate([np.ravel(a) for a in arrays])


@pytest.mark.parametrize(
    "count", [60, pytest.param(500, marks=pytest.mark.slow)], ids=["fast", "whole"]
)
def test_random_graphs_agree_with_torch(count):
    seen = Counter()

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(plans())
    def check(plan):
        seen["drawn"] += 1
        graph = grow(plan)
        if graph is None:
            seen["discarded"] += 1
            return
        seen.update(name for name, *_ in graph.steps)
        seen["longest"] = max(seen["longest"], len(graph.steps))
        compare(graph)

    check()
    assert seen["drawn"] >= count
    assert seen["discarded"] < 0.05 * seen["drawn"]
    assert seen["longest"] > 100
    assert set(OPERATIONS) <= set(seen)


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_agrees_with_torch(name):
    random = np.random.default_rng(1)
    leaves = {key: random.uniform(0.3, 1.5, shape) for key, shape in LEAVES.items()}
    step, _ = tried(name, [0, 1], [leaves["a"], leaves["b"]], leaves)
    assert step[0] == name
    compare(Graph(leaves, [step]))
