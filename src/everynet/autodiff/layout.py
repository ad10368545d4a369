"""Where to put the boxes of a graph: layers from left to right with few crossings.

    layer(v)  = min over successors w of layer(w) - 1              (1)  as far right as can be
    order     : sort each layer by the mean place of neighbours,
                swap neighbours while crossings get fewer          (2)  few crossings
    heights   : least squares to the mean height of neighbours,
                with boxes of a layer kept apart                   (3)  straight edges

An edge over several layers is led through each of them, so that it passes no box.
Sugiyama, Tagawa, Toda (1981), "Methods for visual understanding of hierarchical system structures",
doi:10.1109/TSMC.1981.4308636; (3) is isotonic regression by pooling neighbours that collide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

SWEEPS = 12
Point = tuple[float, float]


@dataclass(frozen=True)
class Placed:
    """The middle of each box, and for each edge the points between its boxes."""

    boxes: list[Point]
    routes: list[list[Point]]


def place(
    sizes: Sequence[tuple[float, float]],
    edges: Sequence[tuple[int, int]],
    gap: tuple[float, float],
) -> Placed:
    """Put boxes of (width, height) so that each edge goes from left to right."""
    layer = _layers(len(sizes), edges)
    boxes, links, routes = list(sizes), [], []
    for tail, head in edges:
        chain = [tail]
        for between in range(layer[tail] + 1, layer[head]):
            chain.append(len(boxes))
            boxes.append((0.0, 4.0))
            layer.append(between)
        chain.append(head)
        routes.append(chain)
        links += list(pairwise(chain))
    rows = _order(layer, links)
    heights = _heights(rows, links, [h for _, h in boxes], gap[1])
    x = _columns(rows, [w for w, _ in boxes], gap[0])
    points = [(x[layer[v]], heights[v]) for v in range(len(boxes))]
    return Placed(points[: len(sizes)], [[points[v] for v in c[1:-1]] for c in routes])


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Edges must be given with every box's outgoing ones before its incoming ones."""
    layer = [0] * count
    for tail, head in edges:
        layer[tail] = min(layer[tail], layer[head] - 1)  # (1)
    first = min(layer)
    return [at - first for at in layer]


def _neighbours(count: int, links: Sequence[tuple[int, int]]) -> tuple[list[list[int]], ...]:
    left: list[list[int]] = [[] for _ in range(count)]
    right: list[list[int]] = [[] for _ in range(count)]
    for tail, head in links:
        left[head].append(tail)
        right[tail].append(head)
    return left, right


def _order(layer: Sequence[int], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The boxes of each layer from bottom to top."""
    left, right = _neighbours(len(layer), links)
    rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
    for v in _seen_from_the_right(layer, left):
        rows[layer[v]].append(v)
    best, least = [list(row) for row in rows], _cost(rows, left, right)
    for sweep in range(SWEEPS):
        near = left if sweep % 2 else right
        for row in rows if sweep % 2 else reversed(rows):
            place = {v: i / max(len(r) - 1, 1) for r in rows for i, v in enumerate(r)}
            row.sort(key=lambda v: _mean([place[w] for w in near[v]], place[v]))  # (2)
        _swap(rows, left, right)
        cost = _cost(rows, left, right)
        if cost < least:
            best, least = [list(row) for row in rows], cost
    return best


def _swap(rows: list[list[int]], left: list[list[int]], right: list[list[int]]) -> None:
    """Exchange two boxes that stand side by side while that makes the picture better."""
    for _ in range(SWEEPS):
        better = False
        for k, row in enumerate(rows):
            around = rows[max(k - 1, 0) : k + 2]
            for i in range(len(row) - 1):
                before = _cost(around, left, right)
                row[i], row[i + 1] = row[i + 1], row[i]
                if _cost(around, left, right) < before:
                    better = True
                else:
                    row[i], row[i + 1] = row[i + 1], row[i]
        if not better:
            return


def _cost(
    rows: Sequence[Sequence[int]], left: Sequence[Sequence[int]], right: Sequence[Sequence[int]]
) -> int:
    """How many edges cross, and how many arguments of one box stand in the wrong order."""
    total = 0
    for before, row in pairwise(rows):
        place = {v: i for i, v in enumerate(before)}
        ends = np.array([place[w] for v in row for w in sorted(left[v], key=place.__getitem__)])
        total += sum(int((ends[:i] > ends[i]).sum()) for i in range(len(ends)))
        for v in row:
            tops = [place[w] for w in left[v]]  # the first argument stands on top
            total += sum(a < b for i, a in enumerate(tops) for b in tops[i + 1 :])
    return total


def _seen_from_the_right(layer: Sequence[int], left: Sequence[Sequence[int]]) -> list[int]:
    """All boxes as a walk back from the last layer meets them: arguments in their order."""
    seen: dict[int, None] = {}
    stack = [v for v in range(len(layer)) if layer[v] == max(layer)]
    while stack:
        v = stack.pop()
        if v not in seen:
            seen[v] = None
            stack += left[v]
    return [*seen, *(v for v in range(len(layer)) if v not in seen)]


def _mean(places: Sequence[float], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _heights(
    rows: Sequence[Sequence[int]],
    links: Sequence[tuple[int, int]],
    size: Sequence[float],
    gap: float,
) -> list[float]:
    left, right = _neighbours(len(size), links)
    y = [0.0] * len(size)
    for row in rows:
        for v, at in zip(row, _apart([0.0] * len(row), [size[v] for v in row], gap), strict=True):
            y[v] = at
    for sweep in range(2 * SWEEPS):
        near = (right, left)[sweep % 2]
        for row in rows if near is left else reversed(rows):
            wish = [_mean([y[w] for w in near[v]], y[v]) for v in row]
            for v, at in zip(row, _apart(wish, [size[v] for v in row], gap), strict=True):
                y[v] = at  # (3)
    return y


def _apart(wish: Sequence[float], size: Sequence[float], gap: float) -> list[float]:
    """The heights nearest to `wish`, in this order, that leave `gap` between boxes."""
    steps = [0.0, *((a + b) / 2 + gap for a, b in pairwise(size))]
    offset = [float(at) for at in np.cumsum(steps)][: len(wish)]
    pools: list[tuple[float, int]] = []  # (mean, count) of boxes that touch
    for target, below in zip(wish, offset, strict=True):
        mean, count = target - below, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    level = [mean for mean, count in pools for _ in range(count)]
    return [a + b for a, b in zip(level, offset, strict=True)]


def _columns(rows: Sequence[Sequence[int]], width: Sequence[float], gap: float) -> list[float]:
    widest = [max(width[v] for v in row) for row in rows]
    steps = [0.0, *((a + b) / 2 + gap for a, b in pairwise(widest))]
    return [float(x) for x in np.cumsum(steps)]
