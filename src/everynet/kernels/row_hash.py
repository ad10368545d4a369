"""SHA-256 of the numbers of rows, by which a table is split: the bits of hashlib, but faster.

    S0(a) = (a >>> 2) ^ (a >>> 13) ^ (a >>> 22)         S1(e) = (e >>> 6) ^ (e >>> 11) ^ (e >>> 25)
    t1 = h + S1(e) + ((e & f) ^ (~e & g)) + k_i + w_i   t2 = S0(a) + ((a & b) ^ (a & c) ^ (b & c))

FIPS 180-4, section 6.2. A key is a prefix and the row in decimal digits: one block of 64 bytes.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, UInt8, UInt32, UInt64

from everynet.kernels.compiled import compiled

MOST_PREFIX = 32  # with the 19 digits of a row, and what SHA-256 appends, less than a block


def _fractions(root: int, count: int) -> UInt32[np.ndarray, " count"]:
    """The first 32 bits of the fractions of square or cube roots of the first primes."""
    primes = [n for n in range(2, 312) if all(n % d for d in range(2, n))][:count]
    found = []
    for prime in primes:
        scaled, low, high = prime << (32 * root), 0, prime << 32
        while high - low > 1:  # the whole root of prime * 2^(32 root), exactly
            middle = (low + high) // 2
            low, high = (middle, high) if middle**root <= scaled else (low, middle)
        found.append(low % 2**32)
    return np.array(found, np.uint32)


_BEGIN, _ROUNDS = _fractions(2, 8), _fractions(3, 64)


@compiled(inline="always")
def _turn(x: np.uint32, by: int) -> np.uint32:
    return np.uint32((x >> np.uint32(by)) | (x << np.uint32(32 - by)))


@compiled()
def _digest_rows(
    rows: Int64[np.ndarray, " rows"],
    prefix: UInt8[np.ndarray, " prefix"],
    begin: UInt32[np.ndarray, 8],
    rounds: UInt32[np.ndarray, 64],
    found: UInt64[np.ndarray, " rows"],
) -> None:
    block, w, digits = np.zeros(64, np.uint8), np.zeros(64, np.uint32), np.zeros(20, np.uint8)
    for place in range(len(rows)):
        block[:] = 0
        size = len(prefix)
        block[:size] = prefix
        left, count = rows[place], 0
        while left > 0 or count == 0:
            digits[count] = 48 + left % 10
            left //= 10
            count += 1
        for digit in range(count):
            block[size + digit] = digits[count - 1 - digit]
        size += count
        block[size] = 0x80
        block[62], block[63] = (8 * size) >> 8, (8 * size) & 255
        for i in range(16):
            w[i] = np.uint32(
                (np.uint32(block[4 * i]) << np.uint32(24))
                | (np.uint32(block[4 * i + 1]) << np.uint32(16))
                | (np.uint32(block[4 * i + 2]) << np.uint32(8))
                | np.uint32(block[4 * i + 3])
            )
        for i in range(16, 64):
            x, y = w[i - 15], w[i - 2]
            first = _turn(x, 7) ^ _turn(x, 18) ^ (x >> np.uint32(3))
            second = _turn(y, 17) ^ _turn(y, 19) ^ (y >> np.uint32(10))
            w[i] = np.uint32(w[i - 16] + first + w[i - 7] + second)
        a, b, c, d = begin[0], begin[1], begin[2], begin[3]
        e, f, g, h = begin[4], begin[5], begin[6], begin[7]
        for i in range(64):
            turned = _turn(e, 6) ^ _turn(e, 11) ^ _turn(e, 25)
            t1 = np.uint32(h + turned + ((e & f) ^ (~e & g)) + rounds[i] + w[i])
            turned = _turn(a, 2) ^ _turn(a, 13) ^ _turn(a, 22)
            t2 = np.uint32(turned + ((a & b) ^ (a & c) ^ (b & c)))
            h, g, f, e = g, f, e, np.uint32(d + t1)
            d, c, b, a = c, b, a, np.uint32(t1 + t2)
        high, low = np.uint64(np.uint32(begin[0] + a)), np.uint64(np.uint32(begin[1] + b))
        found[place] = ((high << np.uint64(32)) | low) >> np.uint64(8)


def hash_rows(prefix: str, rows: Int64[np.ndarray, " rows"]) -> UInt64[np.ndarray, " rows"]:
    """The first 56 bits of SHA-256 of the prefix with each row, which is at least 0, behind it."""
    given = np.frombuffer(prefix.encode(), np.uint8)
    assert len(given) <= MOST_PREFIX
    found = np.empty(len(rows), np.uint64)
    _digest_rows(np.ascontiguousarray(rows, np.int64), given, _BEGIN, _ROUNDS, found)
    return found
