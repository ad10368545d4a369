"""Byte-pair encoding, compiled: learning which neighbours to join, and joining them.

Words lie one after another in a flat array of symbols. A symbol knows the live ones before and
after it, each pair of neighbours knows how often it is there and at which places, and a heap knows
the commonest pair. To join one pair touches its own places alone, so that all joins together cost
little more than reading the words. Counts in the heap may be out of date and are put right when
they come up; they only ever fall, because pairs with the newest symbol are all that is ever added.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from everynet.kernels.compiled import compiled

Symbols: TypeAlias = NDArray[Any]  # int32; what is read of an array is numba's own integer
Numbers: TypeAlias = NDArray[Any]  # int64
Whole: TypeAlias = int | np.int64

BYTES = 256
ROOM = 1 << 10  # of the first table of pairs; a power of 2
SHIFT, LOW = 32, 0xFFFFFFFF  # a pair of symbols is one key: the first above the second
COUNT, FIRST, LAST = 0, 1, 2  # of a pair: how often it is there, and the ends of its entries


@compiled()
def find_slot(keys: Numbers, key: Whole) -> Any:  # noqa: ANN401 -- an integer of numba's
    """The place of a key in a hash table, or the free place where it belongs (linear probing)."""
    mask = len(keys) - 1
    at = ((key ^ (key >> 29)) * 0x9E3779B97F4A7C1 >> 20) & mask
    while keys[at] not in (key, -1):
        at = (at + 1) & mask
    return at


@compiled()
def _grow(keys: Numbers, values: Numbers) -> tuple[Numbers, Numbers]:
    """A copy of the hash table with twice the room."""
    wider = np.full(2 * len(keys), -1, np.int64)
    moved = np.zeros((2 * len(keys), values.shape[1]), np.int64)
    for at in range(len(keys)):
        if keys[at] >= 0:
            to = find_slot(wider, keys[at])
            wider[to] = keys[at]
            moved[to] = values[at]
    return wider, moved


@compiled()
def link_neighbours(ends: Numbers, before: Symbols, after: Symbols) -> None:
    """Write the index of the symbol before and after each one of its word; -1 for none."""
    start = 0
    for end in ends:
        for i in range(start, end):
            before[i] = i - 1 if i > start else -1
            after[i] = i + 1 if i + 1 < end else -1
        start = end


@compiled()
def _append_entry(  # noqa: PLR0917 -- a compiled loop takes no names
    keys: Numbers, pairs: Numbers, later: Symbols, entry: int, key: Whole, weight: int
) -> bool:
    """Append an entry to those of its pair; returns whether it is the first of them."""
    at = find_slot(keys, key)
    first = keys[at] < 0
    if first:
        keys[at], pairs[at, FIRST] = key, entry
    else:
        later[pairs[at, LAST]] = entry
    later[entry] = -1
    pairs[at, COUNT] += weight
    pairs[at, LAST] = entry
    return bool(first)


@compiled()
def learn_merges(  # noqa: PLR0912, PLR0915 -- one loop over arrays that grow
    symbols: Symbols, ends: Numbers, counts: Numbers, most: int, least: int
) -> Numbers:
    """The pairs to merge, the commonest first; of equal ones that of the lowest symbols.

    `most` pairs at most, each of which is there at least `least` times when it is joined. Word n
    ends at `ends[n]` and counts `counts[n]` times. The n-th pair becomes symbol 256 + n; `symbols`
    are joined in place.
    """
    size = len(symbols)
    before, after = np.empty(size, np.int32), np.empty(size, np.int32)
    link_neighbours(ends, before, after)
    word = np.repeat(np.arange(len(ends)), np.diff(np.append(np.zeros(1, np.int64), ends)))
    keys, pairs = np.full(ROOM, -1, np.int64), np.zeros((ROOM, 3), np.int64)
    place = np.empty(2 * size + 2, np.int32)  # of an entry: where the pair is, or was
    later = np.empty(2 * size + 2, np.int32)  # the next entry of the same pair
    entries = used = 0
    for i in range(size):
        if after[i] >= 0:
            key = (np.int64(symbols[i]) << SHIFT) + symbols[after[i]]
            place[entries] = i
            used += _append_entry(keys, pairs, later, entries, key, counts[word[i]])
            entries += 1
            if 2 * used > len(keys):
                keys, pairs = _grow(keys, pairs)
    heap = [(np.int64(0), np.int64(0))]
    heap.clear()
    for at in range(len(keys)):
        if keys[at] >= 0 and pairs[at, COUNT] >= least:
            heappush(heap, (-pairs[at, COUNT], keys[at]))

    joined, made = np.empty((most, 2), np.int64), 0
    while made < most and len(heap) > 0:
        count, pair = heappop(heap)
        at = find_slot(keys, pair)
        if pairs[at, COUNT] != -count:  # has fallen since
            if pairs[at, COUNT] >= least:
                heappush(heap, (-pairs[at, COUNT], pair))
            continue
        first, second, new = pair >> SHIFT, pair & LOW, np.int64(BYTES + made)
        joined[made, 0], joined[made, 1] = first, second
        made += 1
        fresh = [np.int64(0)]
        entry = pairs[at, FIRST]
        while entry >= 0:
            i = place[entry]
            entry = later[entry]
            j = after[i]
            if symbols[i] != first or j < 0 or symbols[j] != second:
                continue  # joined to another one meanwhile
            if entries + 2 > len(place):
                place = np.append(place, np.empty_like(place))
                later = np.append(later, np.empty_like(later))
            if 2 * (used + 2) > len(keys):
                keys, pairs = _grow(keys, pairs)
            weight, left, right = counts[word[i]], before[i], after[j]
            if left >= 0:
                beside = np.int64(symbols[left]) << SHIFT
                pairs[find_slot(keys, beside + first), COUNT] -= weight
                place[entries] = left
                if _append_entry(keys, pairs, later, entries, beside + new, weight):
                    fresh.append(beside + new)
                    used += 1
                entries += 1
            if right >= 0:
                beside = np.int64(symbols[right])
                pairs[find_slot(keys, (second << SHIFT) + beside), COUNT] -= weight
                place[entries] = i
                if _append_entry(keys, pairs, later, entries, (new << SHIFT) + beside, weight):
                    fresh.append((new << SHIFT) + beside)
                    used += 1
                entries += 1
                before[right] = i
            symbols[i], symbols[j], after[i] = new, -1, right
        pairs[find_slot(keys, pair), COUNT] = 0
        for more in fresh[1:]:
            held = pairs[find_slot(keys, more), COUNT]
            if held >= least:
                heappush(heap, (-held, more))
    return joined[:made]


@compiled()
def merge_table(joined: Numbers) -> tuple[Numbers, Numbers]:
    """A hash table of merges: the keys of pairs, and the token of each."""
    room = 16
    while room < 2 * len(joined) + 2:
        room *= 2
    keys, becomes = np.full(room, -1, np.int64), np.zeros(room, np.int64)
    for number in range(len(joined)):
        key = (joined[number, 0] << SHIFT) + joined[number, 1]
        at = find_slot(keys, key)
        keys[at], becomes[at] = key, BYTES + number
    return keys, becomes


@compiled()
def apply_merges(symbols: Symbols, ends: Numbers, keys: Numbers, becomes: Numbers) -> Numbers:
    """Merge in each word the pair that was learned first, until none is left.

    What is left of the words lies at the beginning of `symbols`; the new ends are returned.
    """
    before, after = np.empty(len(symbols), np.int32), np.empty(len(symbols), np.int32)
    link_neighbours(ends, before, after)
    heap = [(np.int64(0), np.int64(0))]
    left, start, kept = np.empty_like(ends), 0, 0
    for number in range(len(ends)):
        heap.clear()
        for at in range(start, ends[number]):
            new = _lookup_merge(symbols, after, at, keys, becomes)
            if new >= 0:
                heappush(heap, (new, np.int64(at)))
        while len(heap) > 0:
            new, i = heappop(heap)
            if symbols[i] < 0 or _lookup_merge(symbols, after, i, keys, becomes) != new:
                continue  # one of the two was joined to another one meanwhile
            j = after[i]
            symbols[i], symbols[j] = new, -1
            after[i] = after[j]
            if after[j] >= 0:
                before[after[j]] = i
            for place in (np.int64(before[i]), i):
                if place >= 0:
                    new = _lookup_merge(symbols, after, place, keys, becomes)
                    if new >= 0:
                        heappush(heap, (new, place))
        for at in range(start, ends[number]):
            if symbols[at] >= 0:
                symbols[kept] = symbols[at]
                kept += 1
        start = ends[number]
        left[number] = kept
    return left


@compiled()
def _lookup_merge(
    symbols: Symbols, after: Symbols, i: Whole, keys: Numbers, becomes: Numbers
) -> Any:  # noqa: ANN401 -- an integer of numba's
    """The token that the symbol at i and the next one merge to; -1 if they do not."""
    if after[i] < 0:
        return np.int64(-1)
    key = (np.int64(symbols[i]) << SHIFT) + symbols[after[i]]
    at = find_slot(keys, key)
    return becomes[at] if keys[at] == key else np.int64(-1)
