"""Training, validation and test parts: splits that no seed and no run can change.

A sample's place follows from a hash of its key (the number of its row, or its file name), so it
stays where it is when others are added. Where every class should have its share, as in the sets of
scikit-learn and in tables with classes, the rows of each class with the lowest hashes are taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from jaxtyping import Bool, Int64, Shaped
from torch import Tensor

from everynet.system.errors import UserError

PARTS = ("train", "valid", "test")
TEST, VALID = 0.2, 0.1
"""The share of all samples for the test, and of the rest for validation."""
GENERATED = "synthetic: each part was generated from a fixed seed of its own"
ALL_OF_IT = "all of it is tested on, and none of it was trained on"
TEST_PART = "its test part is tested on"
BY_CALLER = "as the caller divided the rows"
P = TypeVar("P")


def place(key: str, purpose: str) -> float:
    """A number in [0, 1) that follows from the key alone; each purpose has its own."""
    sha = hashlib.sha256(f"everynet {purpose} {key}".encode("utf-8", "surrogateescape"))
    return int.from_bytes(sha.digest()[:7]) / 2**56


def held_out(keys: Sequence[str], share: float, purpose: str) -> Bool[Tensor, " rows"]:
    """Marks about `share` of the keys: those whose place is below it, or else the lowest one."""
    places = torch.tensor([place(key, purpose) for key in keys], dtype=torch.float64)
    marked = places < share
    if len(keys) > 1 and not marked.any():
        marked[places.argmin()] = True
    return marked


def rows(count: int) -> list[str]:
    """The keys of samples that have no name: their numbers."""
    return [str(row) for row in range(count)]


def by_hash(keys: Sequence[str], parts: Sequence[str] = PARTS) -> list[str]:
    """The part of each key; `parts` are those wanted, "train" and one or both of the others."""
    test = held_out(keys, TEST, "test") if "test" in parts else torch.zeros(len(keys)).bool()
    part = ["test" if marked else "train" for marked in test.tolist()]
    if "valid" in parts:
        rest = [row for row, name in enumerate(part) if name == "train"]
        chosen = held_out([keys[row] for row in rest], VALID, "valid")
        for row in torch.tensor(rest)[chosen].tolist():
            part[row] = "valid"
    return part


def stratified(
    y: Shaped[Tensor, " rows"], share: float = TEST, purpose: str = "test"
) -> Bool[Tensor, " rows"]:
    """Marks `share` of each class, rounded, or else one row: always the same choice."""
    places = torch.tensor([place(key, purpose) for key in rows(len(y))], dtype=torch.float64)
    marked = torch.zeros(len(y), dtype=torch.bool)
    for value in y.unique():
        members = (y == value).nonzero()[:, 0]
        lowest = places[members].argsort()[: round(share * len(members))]
        marked[members[lowest]] = True
    if len(y) > 1 and not marked.any():
        marked[places.argmin()] = True
    return marked


def three(test: Bool[Tensor, " rows"]) -> dict[str, Int64[Tensor, " part"]]:
    """The rows of each part of a set that never grows, when its test rows are given."""
    rest = (~test).nonzero()[:, 0]
    valid = stratified(torch.zeros(len(rest)), VALID, "valid")  # of all alike: just a tenth
    return {"train": rest[~valid], "valid": rest[valid], "test": test.nonzero()[:, 0]}


def generate_parts(count: int, draw: Callable[[int, int], P], test: int = 5) -> dict[str, P]:
    """Parts drawn by (number, seed): a tenth of `count` is valid, `count // test` more are test."""
    sizes = {"train": count - count // 10, "valid": count // 10, "test": count // test}
    return {part: draw(rows, seed) for seed, (part, rows) in enumerate(sizes.items(), 1)}


def all_parts(part: P) -> dict[str, P]:
    """The same samples as every part: whatever a recipe looks at is what it is evaluated on."""
    return dict.fromkeys(PARTS, part)


def test_part(parts: Mapping[str, Sequence[P]], own: bool, name: str) -> tuple[list[P], str]:
    """What of a listing is evaluated on: the test that the user made, or else everything."""
    found = list(parts["test"]) if own else [one for each in parts.values() for one in each]
    if not found:
        raise UserError(f"{name} holds nothing to evaluate on; add some")
    return found, TEST_PART if own else ALL_OF_IT
