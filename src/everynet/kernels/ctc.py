"""Connectionist temporal classification: the sum over all alignments, forward and backward.

A sequence of L symbols becomes S = 2 L + 1 states l'_1 .. l'_S, a blank before, between and after
the symbols. With y_t(k) the probability of symbol k in frame t

    a_t(s) = y_t(l'_s) (a_{t-1}(s) + a_{t-1}(s-1) + skip_s a_{t-1}(s-2))
    b_t(s) = y_t(l'_s) (b_{t+1}(s) + b_{t+1}(s+1) + skip_{s+2} b_{t+1}(s+2))
    p = a_T(S) + a_T(S-1)
    -d log p / du_t(k) = y_t(k) - (1 / p) sum over s with l'_s = k of a_t(s) b_t(s) / y_t(k)

where skip_s is 1 if l'_s is a symbol and another than l'_{s-2}, u are the logits and y is their
softmax. A sequence that needs more frames than there are has the loss inf and the gradient 0.

On the CPU a compiled loop goes through the frames once onward and once back, and gives loss and
gradient at once. Its numbers are m B^e with B = 2^512, a float64 m between 1 / sqrt(B) and sqrt(B),
and a whole number e, so that no product is too small and nothing but the softmax needs a logarithm.
On cuda torch's own kernel takes its place, elsewhere the same recursion in torch.

Graves et al. (2006), "Connectionist temporal classification", doi:10.1145/1143844.1143891,
section 4.1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import prange
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from everynet.kernels.compiled import compiled, threaded
from everynet.kernels.operator import gradients, operator

NEVER = -1e300
"""The logarithm of a probability of 0, with which can be reckoned."""
_BASE, _ROOT = 2.0**512, 2.0**256
_LOG_BASE = 512 * math.log(2)
_NONE = -math.inf
"""The exponent of a probability of 0."""


def ctc_loss(
    logits: Float[Tensor, "batch time symbols"],
    lengths: Int[Tensor, " batch"],
    targets: Int[Tensor, "batch longest"],
    target_lengths: Int[Tensor, " batch"],
    *,
    blank: int = 0,
) -> Float[Tensor, " batch"]:
    """-log p(targets | logits) of each sequence, in nats; inf where no alignment is long enough.

    Frames from `lengths` on, and symbols from `target_lengths` on, are not looked at.
    """
    batch, _, symbols = logits.shape
    if not len(lengths) == len(targets) == len(target_lengths) == batch:
        raise ValueError(
            f"lengths, targets and target_lengths must have a row for each of the {batch} sequences"
        )
    if not 0 <= blank < symbols:
        raise ValueError(f"blank ({blank}) must be from 0 to {symbols - 1}")
    if logits.is_cuda:
        return _by_torch(logits, lengths, targets, target_lengths, blank)
    if logits.device.type != "cpu":
        return ctc_by_loop(logits, lengths, targets, target_lengths, blank)
    half = logits.dtype in (torch.float16, torch.bfloat16)  # the loop reads float32 and float64
    given = (logits.float() if half else logits).contiguous()
    return _operator(given, lengths, targets, target_lengths, blank)[:, 0].to(logits.dtype)


def _by_torch(
    logits: Tensor, lengths: Tensor, targets: Tensor, target_lengths: Tensor, blank: int
) -> Tensor:
    """Torch's own, whose gradient by the logits is right because log_softmax stands before it."""
    log_p = logits.float().log_softmax(2).transpose(0, 1)
    loss = functional.ctc_loss(
        log_p, targets, lengths, target_lengths, blank, "none", zero_infinity=True
    )
    possible = frames_needed(targets, target_lengths) <= lengths
    return torch.where(possible, loss, math.inf).to(logits.dtype)


def frames_needed(
    targets: Int[Tensor, "batch longest"], target_lengths: Int[Tensor, " batch"]
) -> Int[Tensor, " batch"]:
    """The fewest frames in which each sequence fits: a blank stands between equal symbols."""
    inside = torch.arange(1, targets.shape[1], device=targets.device) < target_lengths[:, None]
    repeated = (targets[:, 1:] == targets[:, :-1]) & inside
    return target_lengths + repeated.sum(1)


def ctc_by_loop(
    logits: Tensor, lengths: Tensor, targets: Tensor, target_lengths: Tensor, blank: int
) -> Tensor:
    """The forward recursion step by step in torch, which differentiates it."""
    log_y = logits.log_softmax(2)
    batch, longest = targets.shape
    states = targets.new_full((batch, 2 * longest + 1), blank)
    states[:, 1::2] = targets
    skip = torch.zeros_like(states, dtype=torch.bool)
    skip[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    emitted = log_y.gather(2, states[:, None].long().expand(-1, logits.shape[1], -1))
    never = torch.full_like(emitted[:, 0], NEVER if logits.dtype == torch.float64 else -1e30)
    a = torch.where(torch.arange(states.shape[1], device=states.device) < 2, emitted[:, 0], never)
    for t in range(1, logits.shape[1]):
        one = torch.cat([never[:, :1], a[:, :-1]], 1)
        two = torch.where(skip, torch.cat([never[:, :2], a[:, :-2]], 1), never)
        now = emitted[:, t] + torch.stack([a, one, two]).logsumexp(0)
        a = torch.where((t < lengths)[:, None], now, a)
    ends = torch.stack([2 * target_lengths, (2 * target_lengths - 1).clamp(min=0)], 1).long()
    last = a.gather(1, ends)
    alone = torch.stack([torch.zeros_like(target_lengths), target_lengths == 0], 1).bool()
    last = torch.where(alone, never[:, :1], last)  # of no symbols the end is one state
    loss = -last.logsumexp(1)
    possible = (frames_needed(targets, target_lengths) <= lengths) & (lengths > 0)
    return torch.where(possible, loss, torch.where(lengths + target_lengths > 0, math.inf, 0.0))


# ------------------------------------------------------------------------------------- compiled


def _ctc(
    logits: Tensor, lengths: Tensor, targets: Tensor, target_lengths: Tensor, blank: int
) -> Tensor:
    """The loss of each sequence, and after it its gradient by the logits, in one row."""
    batch, time, symbols = logits.shape
    if batch and (int(lengths.max()) > time or int(target_lengths.max()) > targets.shape[1]):
        raise ValueError(
            f"lengths must be at most {time} and target_lengths at most {targets.shape[1]}: there "
            "are no more"
        )
    inside = torch.arange(targets.shape[1]) < target_lengths[:, None]
    if bool((inside & ((targets < 0) | (targets >= symbols) | (targets == blank))).any()):
        raise ValueError(f"targets must be from 0 to {symbols - 1} and not the blank ({blank})")
    made = logits.new_zeros(batch, 1 + time * symbols)
    frames, said, counts = (
        one.long().contiguous().numpy() for one in (lengths, targets, target_lengths)
    )
    threaded(_sum_alignments)(logits.numpy(), frames, said, counts, blank, made.numpy())
    return made


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401 -- torch adds attributes to ctx
    *given, ctx.blank = inputs
    ctx.save_for_backward(*given, output)


def _backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 -- likewise
    logits, lengths, targets, target_lengths, output = ctx.saved_tensors
    if torch.is_grad_enabled():

        def plain(logits: Tensor) -> Tensor:
            return _plain(logits, lengths, targets, target_lengths, ctx.blank)

        (by_logits,) = gradients(plain, (logits,), upstream)
    else:
        by_logits = (upstream[:, :1] * output[:, 1:]).view_as(logits)
    return by_logits, None, None, None, None


def _plain(
    logits: Tensor, lengths: Tensor, targets: Tensor, target_lengths: Tensor, blank: int
) -> Tensor:
    loss = ctc_by_loop(logits, lengths, targets, target_lengths, blank)
    return torch.cat([loss[:, None], torch.zeros_like(logits).flatten(1)], 1)


def _fake(
    logits: Tensor, lengths: Tensor, targets: Tensor, target_lengths: Tensor, blank: int
) -> Tensor:
    batch, time, symbols = logits.shape
    return logits.new_empty(batch, 1 + time * symbols)


_operator = operator(_ctc, plain=_plain, fake=_fake, save=_save, backward=_backward)


@compiled(inline="always")
def _add(m: float, e: float, n: float, f: float) -> tuple[float, float]:
    """Add n B^f to m B^e."""
    if f > e:
        m, e, n, f = n, f, m, e
    if f == e:
        return m + n, e
    return (m + n / _BASE, e) if f == e - 1 else (m, e)


@compiled(inline="always")
def _multiply(m: float, e: float, n: float, f: float) -> tuple[float, float]:
    """Multiply m B^e by n B^f; the mantissa is between 1 / sqrt(B) and sqrt(B) again, or 0."""
    m, e = m * n, e + f
    if m > _ROOT:
        return m / _BASE, e + 1
    if 0 < m < 1 / _ROOT:
        return m * _BASE, e - 1
    return m, e


@compiled()
def _softmax(u: NDArray[Any], y: NDArray[np.float64], e: NDArray[np.float64]) -> None:
    """Write y_t(k) = y B^e."""
    for t in range(len(u)):
        most = float(u[t].max())
        total = 0.0
        for k in range(u.shape[1]):
            y[t, k] = math.exp(u[t, k] - most)
            total += y[t, k]
        for k in range(u.shape[1]):
            log_y = u[t, k] - most
            if log_y > -_LOG_BASE / 3:
                y[t, k] /= total
                e[t, k] = 0.0
            elif log_y == -math.inf:
                e[t, k] = _NONE
            else:
                log_y -= math.log(total)
                e[t, k] = math.floor(log_y / _LOG_BASE + 0.5)
                rest = log_y - e[t, k] * _LOG_BASE  # rounded away where log_y is huge
                y[t, k] = math.exp(min(max(rest, -_LOG_BASE / 2), _LOG_BASE / 2))


@compiled()
def _go_on(  # noqa: PLR0917 -- numba knows no keywords
    y: NDArray[np.float64],
    e: NDArray[np.float64],
    label: NDArray[np.int64],
    skip: NDArray[np.bool_],
    a: NDArray[np.float64],
    f: NDArray[np.float64],
) -> None:
    """Write a_t(s) = a B^f."""
    a[0], f[0] = 0.0, _NONE
    for s in range(min(2, len(label))):
        a[0, s], f[0, s] = y[0, label[s]], e[0, label[s]]
    for t in range(1, len(y)):
        for s in range(len(label)):
            m, g = a[t - 1, s], f[t - 1, s]
            if s > 0:
                m, g = _add(m, g, a[t - 1, s - 1], f[t - 1, s - 1])
            if skip[s]:
                m, g = _add(m, g, a[t - 1, s - 2], f[t - 1, s - 2])
            a[t, s], f[t, s] = _multiply(m, g, y[t, label[s]], e[t, label[s]])


@compiled()
def _go_back(  # noqa: PLR0917 -- numba knows no keywords
    y: NDArray[np.float64],
    e: NDArray[np.float64],
    label: NDArray[np.int64],
    skip: NDArray[np.bool_],
    b: NDArray[np.float64],
    f: NDArray[np.float64],
) -> None:
    """From b_{t+1}(s) / y_{t+1}(l'_s) = b B^f and the y of that frame write those of frame t."""
    states = len(label)
    for s in range(states):
        b[s], f[s] = _multiply(b[s], f[s], y[label[s]], e[label[s]])
    for s in range(states):
        if s + 1 < states:
            b[s], f[s] = _add(b[s], f[s], b[s + 1], f[s + 1])
        if s + 2 < states and skip[s + 2]:
            b[s], f[s] = _add(b[s], f[s], b[s + 2], f[s + 2])


def _sum_alignments(  # noqa: PLR0912, PLR0917 -- numba knows no keywords
    logits: NDArray[Any],
    lengths: NDArray[np.int64],
    targets: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    blank: int,
    made: NDArray[Any],
) -> None:
    """Write the loss of each sequence, and after it its gradient by the logits."""
    symbols = logits.shape[2]
    for row in prange(logits.shape[0]):
        time, count = lengths[row], target_lengths[row]
        label = np.full(2 * count + 1, blank)
        for n in range(count):
            label[2 * n + 1] = targets[row, n]
        skip = np.zeros(2 * count + 1, np.bool_)
        for s in range(3, 2 * count + 1, 2):
            skip[s] = label[s] != label[s - 2]
        if time == 0:
            made[row, 0] = np.inf if count else 0.0
            continue
        y, e = np.empty((time, symbols)), np.empty((time, symbols))
        _softmax(logits[row, :time], y, e)
        a, f = np.empty((time, len(label))), np.empty((time, len(label)))
        _go_on(y, e, label, skip, a, f)
        p, g = a[time - 1, 2 * count], f[time - 1, 2 * count]
        if count:
            p, g = _add(p, g, a[time - 1, 2 * count - 1], f[time - 1, 2 * count - 1])
        if p == 0:
            made[row, 0] = np.inf
            continue
        made[row, 0] = -math.log(p) - g * _LOG_BASE
        b, h = np.zeros(len(label)), np.full(len(label), _NONE)
        b[max(2 * count - 1, 0) :] = 1.0
        h[max(2 * count - 1, 0) :] = 0.0
        for t in range(time - 1, -1, -1):
            if t < time - 1:
                _go_back(y[t + 1], e[t + 1], label, skip, b, h)
            at = 1 + t * symbols
            for k in range(symbols):
                made[row, at + k] = y[t, k] if e[t, k] == 0 else 0.0
            for s in range(len(label)):
                share, power = a[t, s] * b[s] / p, f[t, s] + h[s] - g
                if power == 0:
                    made[row, at + label[s]] -= share
                elif power == 1:
                    made[row, at + label[s]] -= share * _BASE
                elif power == -1:
                    made[row, at + label[s]] -= share / _BASE
