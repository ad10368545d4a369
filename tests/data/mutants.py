"""Bad data from a seed: each mutant is what `load` is given and what its one line must say.

Files are damaged only where the damage shows: bits are flipped in signatures and in what a
checksum covers, never where the file would stay valid. `for mutant in mutants(folder)` makes each
case in a folder of its own and yields it, so that a caller may also run the command line on it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Mutant(NamedTuple):
    name: str
    """What was done, for the report of a failure."""
    data: str
    """The name or the path that is given as `data`."""
    arguments: dict[str, object]
    """The other arguments of `load`: target, size, batch_size."""
    words: tuple[str, ...]
    """What the message must hold: the file or the field, and often where in it."""
    kind: str
    """The kind of network to ask: "image" or "table"."""


def mutants(folder: Path, seed: int = 0) -> Iterator[Mutant]:
    """Every bad case, each in a new subfolder of `folder`."""
    from . import bad_arrays, bad_images, bad_tables  # they need Mutant

    makers = (names, *bad_images.MAKERS, *bad_tables.MAKERS, *bad_arrays.MAKERS)
    for maker in makers:
        random = np.random.default_rng([seed, *maker.__name__.encode()])
        place = folder / maker.__name__
        place.mkdir(parents=True)
        yield from maker(place, random)


def names(folder, random):
    for data, *words in (
        ("digts", "digits"),
        ("moon", "moons"),
        ("minst", "mnist"),
        ("", "data"),
        ("digits:5", "digits:5"),
        ("moons:abc", "moons:abc"),
        ("moons:3", "moons:3"),
        ("strokes:-7", "strokes:-7"),
        ("strokes:99999999999", "strokes"),
        ("strokes:" + "9" * 5000, "strokes"),
        (f"{folder}/none.csv", "none.csv", "not there"),
        (f"{folder}/none", "none"),
        ("/dev/zero", "/dev/zero"),
        ("x" * 5000, "xxx"),
        ("a\0b.csv", "a?b.csv"),
    ):
        yield Mutant(f"name {data[:30]!r}", data, {}, tuple(words), "image")
    settings = (
        ("digits", "batch_size", 0),
        ("digits", "batch_size", -3),
        ("digits", "batch_size", 1_000_000),
        ("digits", "size", -1),
        ("digits", "size", 100_000),
        ("iris", "size", 32),
        ("iris", "batch_size", 109),
        ("xor", "batch_size", 901),
    )
    for data, field, value in settings:
        kind = "image" if data == "digits" else "table"
        words = (field, str(value))
        yield Mutant(f"{data} {field}={value}", data, {field: value}, words, kind)
