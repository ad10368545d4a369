"""Training, validation and test parts: splits that no seed and no run can change.

A sample's place follows from a hash of its key (the number of its row, or its file name), so it
stays where it is when others are added. Where every class should have its share, as in the sets of
scikit-learn and in tables with classes, the rows of each class with the lowest hashes are taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64, Shaped, UInt8
from torch import Tensor

from everynet.system.errors import UserError

PARTS = ("train", "valid", "test")
LEFT_OUT = len(PARTS)
"""In the place of that of a part, of a row that is in none."""
TEST, VALID = 0.2, 0.1
"""The share of all samples for the test, and of the rest for validation."""
GENERATED = "synthetic: each part was generated from a fixed seed of its own"
ALL_OF_IT = "all of it is tested on, and none of it was trained on"
TEST_PART = "its test part is tested on"
GIVEN = "train, valid and test are as they were given"
_SHARES = {"test": "a fifth is test", "valid": "a tenth of the rest is valid"}
FEW = 20_000
"""Rows that hashlib is fast enough for."""
_SOME = 2**18  # rows that are looked at together, to take little memory
P = TypeVar("P")
Keys: TypeAlias = "Sequence[str] | range | Shaped[np.ndarray, ' rows']"
Rows: TypeAlias = "dict[str, Int64[Tensor, ' part']]"


def place(key: str, purpose: str) -> float:
    """A number in [0, 1) that follows from the key alone; each purpose has its own."""
    sha = hashlib.sha256(f"everynet {purpose} {key}".encode("utf-8", "surrogateescape"))
    return int.from_bytes(sha.digest()[:7]) / 2**56


def places(keys: Keys, purpose: str) -> Float64[Tensor, " rows"]:
    """The place of each key; rows by their numbers are as well given as an array."""
    if isinstance(keys, np.ndarray | range) and len(keys) > FEW:
        from everynet.kernels.row_hash import hash_rows  # noqa: PLC0415 -- numba, for many rows

        found = np.empty(len(keys))
        for start in range(0, len(keys), _SOME):
            some = slice(start, start + _SOME)
            found[some] = hash_rows(f"everynet {purpose} ", np.asarray(keys[some])) / 2**56
        return torch.from_numpy(found)
    return torch.tensor([place(str(key), purpose) for key in keys], dtype=torch.float64)


def held_out(keys: Keys, share: float, purpose: str) -> Bool[Tensor, " rows"]:
    """Marks about `share` of the keys: those whose place is below it, or else the lowest one."""
    found = places(keys, purpose)
    marked = found < share
    if len(keys) > 1 and not marked.any():
        marked[found.argmin()] = True
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


def rows_by_hash(numbers: Shaped[np.ndarray, " rows"], parts: Sequence[str] = PARTS) -> Rows:
    """What `by_hash` gives of rows by their numbers, as the places of each part among them."""
    marked = torch.zeros(len(numbers), dtype=torch.bool)
    test = held_out(numbers, TEST, "test") if "test" in parts else marked
    rest = (~test).nonzero()[:, 0]
    valid = torch.zeros(len(rest), dtype=torch.bool)
    if "valid" in parts:
        valid = held_out(numbers[rest.numpy()], VALID, "valid")
    found = {"train": rest[~valid], "valid": rest[valid], "test": test.nonzero()[:, 0]}
    return {part: found[part] for part in PARTS if part in parts}


def stratified(
    y: Shaped[Tensor, " rows"],
    share: float = TEST,
    purpose: str = "test",
    numbers: Shaped[np.ndarray, " rows"] | None = None,
) -> Bool[Tensor, " rows"]:
    """Marks `share` of each class, rounded, or else one row: always the same choice.

    `numbers` are those of the rows, where some of a table are left out.
    """
    found = places(range(len(y)) if numbers is None else numbers, purpose)
    marked = torch.zeros(len(y), dtype=torch.bool)
    for value in torch.cat([some.unique() for some in y.split(_SOME)]).unique():
        member = y == value
        own = found[member].numpy()
        if lowest := round(share * len(own)):
            own.partition(lowest - 1)  # in place, because they may be many
            marked |= member & (found <= own[lowest - 1])
    if len(y) > 1 and not marked.any():
        marked[found.argmin()] = True
    return marked


class RowsByPart(Mapping[str, Tensor]):
    """The rows of each part, by the place in PARTS that each row of a table has: a byte a row."""

    def __init__(self, part: UInt8[np.ndarray, " rows"]) -> None:
        self.part = part

    def __getitem__(self, name: str) -> Int64[Tensor, " part"]:
        return torch.from_numpy(np.flatnonzero(self.part == PARTS.index(name)))

    def __iter__(self) -> Iterator[str]:
        return iter(PARTS)

    def __len__(self) -> int:
        return len(PARTS)


def taken_from_train(missing: Iterable[str]) -> str:
    """How parts that the user did not make are taken from train, to go on in a sentence."""
    shares = " and ".join(_SHARES[part] for part in ("test", "valid") if part in missing)
    return f"of the rows of train, by hash of their number, {shares}"


@dataclass(frozen=True)
class OwnSplit:
    """Parts that the user made: train, and those others that are not to be taken out of it."""

    rows: Mapping[str, Int64[Tensor, " rows"]]
    how: str = GIVEN
    """One sentence that says how they were made."""
    groups: Sequence[str] = ()
    """The group of each row, if rows of a group must stay together in what is taken from train."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The parts that are taken out of train."""
        return tuple(part for part in PARTS if part not in self.rows)

    @property
    def sentence(self) -> str:
        """How all three parts were made."""
        if not self.missing:
            return self.how
        taken = taken_from_train(self.missing)
        if self.groups:
            taken = taken.replace("of the rows of train, by hash of their number", "by its hash")
        return taken if self.how == GIVEN else f"{self.how}; {taken}"

    def complete(
        self, y: Shaped[Tensor, " rows"] | None = None
    ) -> dict[str, Int64[Tensor, " part"]]:
        """The rows of all three parts; of each class of `y`, or of all, by the usual hash."""
        found, train = dict(self.rows), self.rows["train"]
        keys = np.array(self.groups, object)[train] if self.groups else np.arange(len(train))
        for part, share in (("test", TEST), ("valid", VALID)):
            if part in found:
                continue
            if self.groups:
                distinct = [*dict.fromkeys(keys.tolist())]
                of = dict(zip(distinct, held_out(distinct, share, part).tolist(), strict=True))
                marked = torch.tensor([of[key] for key in keys.tolist()])
            elif y is None:
                marked = held_out(keys, share, part)
            else:
                marked = stratified(y[train], share, part)
            found[part], train = train[marked], train[~marked]
            keys = keys[~marked.numpy()]
        return {**found, "train": train}

    @property
    def numbers(self) -> dict[str, list[int]]:
        """The row numbers of all three parts."""
        found = self.complete()
        return {part: found[part].tolist() for part in PARTS}


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
