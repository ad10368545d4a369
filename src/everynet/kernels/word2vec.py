"""Skip-gram and CBOW with negative sampling: one pass over a stretch of text, word by word.

Noise words are drawn once for a centre word and shared by the words around it, so that a window is
a product of two small matrices whose rows stay in the nearest cache: six rows are fetched where
noise for each pair would fetch thirty. The gradient of a window is taken at one place and added to
the rows. Threads write to the same matrices without locks: an update that is lost now and then is
noise. Random numbers are a function of the state given, so that one thread repeats bit by bit.

On other devices the windows of many centre words are one batch (`update_batch`). There a row that
occurs in several of them moves by the sum of its gradients, all taken at one place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from everynet.kernels.compiled import compiled

Rows = NDArray[np.float32]
Ids = NDArray[np.int32]
Bits = NDArray[np.uint32]
Words = tuple[Ids, int, Ids, int]
"""The words around a centre and their number; the centre with its noise, and their number."""
Buffers = tuple[Rows, Rows, Rows]
"""Rows of the input words, of the targets, and the scores of their pairs."""

WATCHED = 16
"""The loss is added up at one in so many centre words."""


class Noise(NamedTuple):
    """Words in proportion to given weights, each drawn by one number and one comparison."""

    accept: Bits
    """Below this share of 2^32, column i stands for word i; from there on for `alias[i]`."""
    alias: Ids

    @staticmethod
    def of(weights: NDArray[np.float64]) -> Noise:
        """Walker's tables: every column is filled up by one word that has more than its share."""
        share = weights * (len(weights) / weights.sum())
        accept, alias = np.ones(len(share)), np.arange(len(share), dtype=np.int32)
        small, large = np.flatnonzero(share < 1).tolist(), np.flatnonzero(share >= 1).tolist()
        while small and large:
            low, high = small.pop(), large[-1]
            accept[low], alias[low] = share[low], high
            share[high] -= 1 - share[low]
            if share[high] < 1:
                small.append(large.pop())
        return Noise(to_uint32(accept), alias)


def to_uint32(probabilities: NDArray[np.float64]) -> Bits:
    """Probabilities as whole numbers out of 2^32, to compare 32 random bits with."""
    return np.minimum(probabilities * 2.0**32, 2.0**32 - 1).astype(np.uint32)


class Rule(NamedTuple):
    """The settings of a pass over a text."""

    window: int
    """Most words on each side; the reach of a centre word is drawn from 1 to this."""
    negatives: int
    keep: Bits
    """The chance of each word's occurrence to be read, of 2^32."""
    noise: Noise
    bag: bool
    """Whether the mean of a window predicts its centre word (CBOW), or each word does."""


class Passed(NamedTuple):
    """The random state and the loss after a pass over a stretch of text."""

    state: int
    """Of the random numbers; it goes into the next pass."""
    loss: float
    """Summed over the predictions that were watched."""
    watched: int


def read_text(
    v: Rows, u: Rows, text: Ids, rule: Rule, *, rates: tuple[float, float], state: int
) -> Passed:
    """Train both tables on a stretch of text in place; a negative number ends a sentence.

    The learning rate goes from the first of `rates` to the second, sentence by sentence.
    """
    done = _read(
        v, u, text, rule.window, rule.negatives, rule.keep, rule.noise.accept, rule.noise.alias,
        rule.bag, rates[0], rates[1], np.uint64(state),
    )  # fmt: skip
    return Passed(int(done[0]), float(done[1]), int(done[2]))


@compiled(inline="always")
def _next(state: np.uint64) -> np.uint64:
    """64 random bits (xorshift), which are also the next state."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@compiled()
def _read(  # noqa: PLR0917 -- one pass; compiled code takes its arrays one by one
    v: Rows,
    u: Rows,
    text: Ids,
    window: int,
    negatives: int,
    keep: Bits,
    accept: Bits,
    alias: Ids,
    bag: bool,
    first: float,
    last: float,
    state: np.uint64,
) -> tuple[np.uint64, float, int]:
    size, most = v.shape[1], 2 * window
    vs = np.zeros((most + 1, size), np.float32)  # rows of zeros fill up blocks of two and of three
    us = np.zeros((negatives + 3, size), np.float32)
    g = np.zeros((most + 1, negatives + 3), np.float32)
    inputs, targets = np.zeros(most, np.int32), np.zeros(negatives + 1, np.int32)
    kept = np.zeros(len(text), np.int32)
    loss, watched, centres, place = 0.0, 0, 0, 0
    while place < len(text):
        rate = np.float32(first + (last - first) * (place / len(text)))
        count = 0
        while place < len(text) and text[place] >= 0:
            state = _next(state)
            if np.uint32(state >> np.uint64(32)) <= keep[text[place]]:
                kept[count] = text[place]
                count += 1
            place += 1
        place += 1
        for i in range(count):
            state = _next(state)
            reach = 1 + np.int64((state >> np.uint64(33)) % np.uint64(window))
            width = 0
            low, high = max(0, i - int(reach)), min(count, i + int(reach) + 1)
            for j in range(low, high):
                if j != i:
                    inputs[width] = kept[j]
                    width += 1
            if width == 0:
                continue
            targets[0] = kept[i]
            outputs = 1
            for _ in range(negatives):
                state = _next(state)
                column = np.int64(
                    ((state >> np.uint64(32)) * np.uint64(len(accept))) >> np.uint64(32)
                )
                own = np.uint32(state & np.uint64(0xFFFFFFFF)) < accept[column]
                word = column if own else np.int64(alias[column])
                if word != kept[i]:
                    targets[outputs] = word
                    outputs += 1
            watch = centres % WATCHED == 0
            centres += 1
            words, buffers = (inputs, width, targets, outputs), (vs, us, g)
            if bag:
                loss += _update_bag(v, u, words, rate, watch, buffers)
                watched += watch
            else:
                loss += _update_pairs(v, u, words, rate, watch, buffers)
                watched += watch * width
    return state, loss, watched


@compiled(fastmath={"reassoc", "contract", "nsz", "arcp"})
def _update_pairs(  # noqa: PLR0917 -- a compiled loop takes no names
    v: Rows, u: Rows, words: Words, rate: np.float32, watch: bool, buffers: Buffers
) -> float:
    """Update the vectors of a window whose words each predict its centre; returns the loss.

    The noise is shared by all words of the window.
    """
    inputs, width, targets, outputs = words
    vs, us, g = buffers
    size = vs.shape[1]
    _copy_rows(v, inputs, width, vs)
    _copy_rows(u, targets, outputs, us)
    for j in range(0, width, 2):  # in blocks, so that a number that was loaded serves thrice
        for t in range(0, outputs, 3):
            a = b = c = p = q = r = np.float32(0.0)
            for d in range(size):
                x, y = vs[j, d], vs[j + 1, d]
                a += x * us[t, d]
                b += x * us[t + 1, d]
                c += x * us[t + 2, d]
                p += y * us[t, d]
                q += y * us[t + 1, d]
                r += y * us[t + 2, d]
            g[j, t], g[j, t + 1], g[j, t + 2] = a, b, c
            g[j + 1, t], g[j + 1, t + 1], g[j + 1, t + 2] = p, q, r
    loss = _scores_to_gradients(g, width, outputs, rate, watch)
    for j in range(width):
        row = inputs[j]
        for t in range(0, outputs, 3):
            a, b, c = g[j, t], g[j, t + 1], g[j, t + 2]
            for d in range(size):
                v[row, d] += a * us[t, d] + b * us[t + 1, d] + c * us[t + 2, d]
    for t in range(outputs):
        row = targets[t]
        for j in range(0, width, 2):
            a, b = g[j, t], g[j + 1, t]
            for d in range(size):
                u[row, d] += a * vs[j, d] + b * vs[j + 1, d]
    return loss


@compiled(fastmath={"reassoc", "contract", "nsz", "arcp"})
def _update_bag(  # noqa: PLR0917 -- a compiled loop takes no names
    v: Rows, u: Rows, words: Words, rate: np.float32, watch: bool, buffers: Buffers
) -> float:
    """Update the vectors of a window whose mean predicts its centre; returns the loss."""
    inputs, width, targets, outputs = words
    vs, us, g = buffers
    size = vs.shape[1]
    part = np.float32(1.0) / np.float32(width)
    _copy_rows(u, targets, outputs, us)
    vs[0] = np.float32(0.0)
    for j in range(width):
        row = inputs[j]
        for d in range(size):
            vs[0, d] += part * v[row, d]
    for t in range(0, outputs, 3):
        a = b = c = np.float32(0.0)
        for d in range(size):
            a += vs[0, d] * us[t, d]
            b += vs[0, d] * us[t + 1, d]
            c += vs[0, d] * us[t + 2, d]
        g[0, t], g[0, t + 1], g[0, t + 2] = a, b, c
    loss = _scores_to_gradients(g, 1, outputs, rate, watch)
    vs[1] = np.float32(0.0)
    for t in range(outputs):
        row, a = targets[t], g[0, t]
        for d in range(size):
            vs[1, d] += part * a * us[t, d]
            u[row, d] += a * vs[0, d]
    for j in range(width):
        row = inputs[j]
        for d in range(size):
            v[row, d] += vs[1, d]
    return loss


@compiled()
def _copy_rows(table: Rows, words: Ids, count: int, to: Rows) -> None:
    for j in range(count):
        row = words[j]
        for d in range(to.shape[1]):
            to[j, d] = table[row, d]


@compiled()
def _scores_to_gradients(g: Rows, width: int, outputs: int, rate: np.float32, watch: bool) -> float:
    """Replace scores by the rate times the gradient of the log-likelihood, padding by 0.

    Returns the loss if it is watched, else 0.
    """
    loss = 0.0
    one = np.float32(1.0)
    for j in range(width):
        if watch:
            for t in range(outputs):
                x = -np.float64(g[j, t]) if t == 0 else np.float64(g[j, t])
                loss += max(x, 0.0) + np.log1p(np.exp(-abs(x)))
        for t in range(outputs):
            g[j, t] = -rate / (one + np.exp(-g[j, t]))
        g[j, 0] += rate
        for t in range(outputs, -(-outputs // 3) * 3):
            g[j, t] = 0.0
    for t in range(outputs):
        g[width, t] = 0.0
    return loss


# ------------------------------------------------------------------------------ whole batches


class Windows(NamedTuple):
    """The windows of a batch of centre words."""

    inputs: Int[Tensor, "batch around"]
    """The words around each."""
    there: Bool[Tensor, "batch around"]
    """Which of these places are in reach and in the sentence."""
    targets: Int[Tensor, "batch outputs"]
    """The centre word, then noise."""
    counts: Bool[Tensor, "batch outputs"]
    """False for noise that happens to be the centre word."""


def draw_windows(  # noqa: PLR0917
    text: Int[Tensor, " words"],
    sentence: Int[Tensor, " words"],
    centres: Int[Tensor, " batch"],
    rule: Rule,
    noise: tuple[Int[Tensor, " vocab"], Int[Tensor, " vocab"]],
    generator: torch.Generator,
) -> Windows:
    """Draw windows around `centres`, with noise from the tables `noise`, on the text's device."""
    device, n = text.device, len(centres)
    far = torch.arange(1, rule.window + 1, device=device)
    offsets = torch.cat([-far.flip(0), far])
    reach = torch.randint(1, rule.window + 1, (n, 1), generator=generator, device=device)
    places = centres[:, None] + offsets
    inside = places.clamp(0, len(text) - 1)
    there = (offsets.abs() <= reach) & (places == inside)
    there &= sentence[inside] == sentence[centres, None]
    accept, alias = noise
    shape = (n, rule.negatives)
    column = torch.randint(len(accept), shape, generator=generator, device=device)
    bits = torch.randint(2**32, shape, generator=generator, device=device)
    drawn = torch.where(bits < accept[column], column, alias[column])
    targets = torch.cat([text[centres, None], drawn], 1)
    counts = targets != text[centres, None]
    counts[:, 0] = True
    return Windows(text[inside], there, targets, counts)


def update_batch(
    v: Float[Tensor, "vocab size"],
    u: Float[Tensor, "vocab size"],
    given: Windows,
    rate: float,
    *,
    bag: bool,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """One step of SGD on a batch, in place; returns its loss and the number of predictions."""
    vs, us = v[given.inputs], u[given.targets]
    there = given.there.to(v.dtype)
    known = there.any(1, keepdim=True) if bag else given.there
    part = there / there.sum(1, keepdim=True).clamp(min=1)
    h = torch.einsum("bj,bjd->bd", part, vs)[:, None] if bag else vs
    s = h @ us.mT  # batch around outputs
    use = (known[:, :, None] & given.counts[:, None, :]).to(v.dtype)
    label = torch.zeros_like(s)
    label[:, :, 0] = 1
    g = rate * (label - s.sigmoid()) * use
    dh = g @ us
    dv = part[:, :, None] * dh if bag else dh
    v.index_add_(0, given.inputs.flatten(), dv.flatten(0, 1))
    u.index_add_(0, given.targets.flatten(), (g.mT @ h).flatten(0, 1))
    loss = -(logsigmoid(s * (2 * label - 1)) * use).sum()
    return loss, known.sum()
