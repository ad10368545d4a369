"""Sentences in a column as counts of their words, hashed into a fixed number of buckets.

    x_j = c_j log((1 + n) / (1 + n_j)) / |x|        (1)  tf-idf, of length one

c_j counts the words of a cell in bucket j, n_j of n training rows have one. The bucket of a word
is its CRC-32: the same on every machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.compute as pc
from jaxtyping import Float64, Int32

from everynet.data.tables.words import strings, to_numpy

BUCKETS = 128


class Bags:
    """How often each different cell has words of each bucket: cell, bucket and count, by bucket."""

    def __init__(self, cells: Sequence[str], buckets: int = BUCKETS) -> None:
        self.cells, self.buckets = len(cells), buckets
        split = pc.split_pattern_regex(pc.utf8_lower(strings(cells)), r"[^\pL\pN_]+")
        words = split.flatten().dictionary_encode()
        bucket = np.array([zlib.crc32(w.encode()) % buckets for w in words.dictionary.to_pylist()])
        filled = np.array([bool(word) for word in words.dictionary.to_pylist()], bool)
        cell = np.repeat(np.arange(self.cells), np.diff(to_numpy(split.offsets)))
        of_word = to_numpy(words.indices)
        kept = filled[of_word] if len(of_word) else np.zeros(0, bool)
        keys = bucket[of_word[kept]].astype(np.int64) * max(1, self.cells) + cell[kept]
        both, self.counts = np.unique(keys, return_counts=True)
        self.bucket, self.cell = np.divmod(both, max(1, self.cells))

    def rarity(self, codes: Int32[np.ndarray, " train"]) -> Float64[np.ndarray, " buckets"]:
        """log((1 + n) / (1 + n_j)) of some rows."""
        rows = np.bincount(codes[codes >= 0], minlength=self.cells)
        having = np.bincount(self.bucket, rows[self.cell], self.buckets)
        idf: Float64[np.ndarray, " buckets"] = np.log((1 + len(codes)) / (1 + having))
        return idf

    def columns(
        self, codes: Int32[np.ndarray, " rows"], idf: Sequence[float]
    ) -> Iterator[Float64[np.ndarray, " rows"]]:
        """(1) of each row, bucket by bucket; 0 where no cell is."""
        weights = self.counts * np.array(idf, np.float64)[self.bucket]
        lengths = np.sqrt(np.bincount(self.cell, weights**2, self.cells))
        weights = weights / np.where(lengths > 0, lengths, 1.0)[self.cell]
        ends = np.searchsorted(self.bucket, np.arange(self.buckets + 1))
        for bucket in range(self.buckets):
            some = slice(ends[bucket], ends[bucket + 1])
            of_cell = np.zeros(self.cells + 1)  # the last one is of a cell that is missing
            of_cell[self.cell[some]] = weights[some]
            yield of_cell[codes]
