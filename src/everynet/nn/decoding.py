"""Decoding: a sequence from a network that gives the probabilities of the next token.

    p = softmax(y / T)                                      (1)  temperature T
    K = the k likeliest tokens                              (2)  top-k
    N = the fewest likeliest tokens with sum_N p >= top_p   (3)  nucleus
    v_t = argmax_v p(v | v_1 .. v_{t-1})                    (4)  greedy
    score(v) = sum_t log p(v_t | v_1 .. v_{t-1}) / |v|^a    (5)  what a beam makes largest

A network takes part with two functions: one that begins, from whatever it is given, and
`step(tokens, state)`; both give logits of (batch, vocabulary) and a state. A state is a tensor with
the batch as its first dimension, a tuple of states, or an object that is indexed by rows, such as a
cache of keys and values; one that says `shared_by_beams` has a row for each source instead. |v|
counts the token that ends a sequence.

Holtzman et al. (2020), "The curious case of neural text degeneration", arXiv:1904.09751, for (3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from everynet.system.errors import UserError

S = TypeVar("S")
Step: TypeAlias = Callable[[Int64[Tensor, " batch"], S], tuple[Float[Tensor, "batch vocab"], S]]
Choose: TypeAlias = Callable[
    [Float[Tensor, "batch vocab"]], tuple[Float[Tensor, " batch"], Int64[Tensor, " batch"]]
]

AHEAD = 32
"""Tokens between two questions to a device other than the CPU, each of which waits for it."""


def take_rows(state: Any, rows: Int64[Tensor, " rows"]) -> Any:  # noqa: ANN401 -- of any network
    """The state of these rows of the batch."""
    if isinstance(state, tuple):
        return tuple([take_rows(part, rows) for part in state])
    return state[rows]


def take_beams(state: Any, rows: Int64[Tensor, " rows"]) -> Any:  # noqa: ANN401 -- of any network
    """The same where every row stays with its source: what beams share is left as it is."""
    if isinstance(state, tuple):
        return tuple([take_beams(part, rows) for part in state])
    return state if getattr(state, "shared_by_beams", False) else state[rows]


def generate(
    step: Step[S],
    logits: Float[Tensor, "batch vocab"],
    state: S,
    length: int,
    choose: Choose,
    *,
    end: int | None = None,
    stops: Callable[[list[int]], bool] | None = None,
) -> tuple[Int64[Tensor, "batch time"], Float[Tensor, " batch"]]:
    """Up to `length` tokens as `choose` takes them, and the log-probability of each sequence.

    A sequence ends with the token `end`, or once `stops` holds for its tokens; after `end` there
    are only more of it, which count for nothing.
    """
    going = torch.ones(len(logits), dtype=torch.bool, device=logits.device)
    total, tokens = logits.new_zeros(len(logits), dtype=torch.double), list[Tensor]()
    every = 1 if logits.device.type == "cpu" else AHEAD
    while len(tokens) < length:
        log_p, token = choose(logits)
        if end is not None:
            token = token.where(going, end)
        total = total + log_p.where(going, 0)
        tokens.append(token)
        if end is not None:
            going = going & (token != end)
        if len(tokens) == length:
            break
        if len(tokens) % every == 0 and (end is not None or stops is not None):
            rows = torch.stack(tokens, 1).tolist() if stops is not None else [[]] * len(going)
            still = zip(going.tolist(), rows, strict=True)
            if not any(goes and not (stops and stops(row)) for goes, row in still):
                break
        logits, state = step(token, state)
    return torch.stack(tokens, 1), total


def take_likeliest(
    logits: Float[Tensor, "batch vocab"],
) -> tuple[Float[Tensor, " batch"], Int64[Tensor, " batch"]]:
    """The likeliest token of each row and its log-probability."""
    best, token = logits.max(1)  # (4)
    return best.double() - normalizers(logits), token


def normalizers(logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, " rows"]:
    """What is taken off the logits of a row to make them log-probabilities: log sum_v exp y_v."""
    wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    return wide.logsumexp(1).double()


@dataclass
class Draw:
    """Draws each token from its distribution, cut down to the likeliest where that is wanted.

    A token is argmax_v p_v / e_v with exponential numbers e_v, as `torch.multinomial` has it. They
    are drawn on the CPU, where the generator is, for several tokens at once where the network is
    elsewhere: the same text on every device, with few waits.
    """

    generator: torch.Generator | None = None
    temperature: float = 1.0
    top_k: int = 0
    """How many of the likeliest tokens remain; 0 keeps all."""
    top_p: float = 1.0
    """The probability that the likeliest tokens that remain have at least; 1 keeps all."""
    banned: Collection[int] = ()
    """Tokens that are never drawn."""

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise UserError(
                f"temperature ({self.temperature}) must be above 0; 1 is what was learned"
            )
        if self.top_k < 0:
            raise UserError(f"top_k ({self.top_k}) must be at least 1, or 0 for all tokens")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p ({self.top_p}) must be above 0 and at most 1, which keeps all")
        self._noise: list[Tensor] = []

    def __call__(
        self, logits: Float[Tensor, "batch vocab"]
    ) -> tuple[Float[Tensor, " batch"], Int64[Tensor, " batch"]]:
        log_p = self.log_probabilities(logits)
        if not self._noise:
            several = 1 if log_p.device.type == "cpu" else AHEAD
            noise = [
                torch.empty(log_p.shape, dtype=torch.double).exponential_(generator=self.generator)
                for _ in range(several)
            ]
            self._noise = list(torch.stack(noise).to(log_p.device).unbind())
        token = (log_p.exp() / self._noise.pop(0)).argmax(1)
        return log_p.gather(1, token[:, None])[:, 0], token

    def log_probabilities(
        self, logits: Float[Tensor, "batch vocab"]
    ) -> Float[Tensor, "batch vocab"]:
        """The distribution that is drawn from, its logarithm: -inf for what is left out."""
        logits = logits.double() / self.temperature  # (1)
        if self.banned:
            logits[:, list(self.banned)] = -math.inf
        if 0 < self.top_k < logits.shape[1]:
            least = logits.topk(self.top_k, dim=1).values[:, -1:]  # (2)
            logits = logits.masked_fill(logits < least, -math.inf)
        if self.top_p < 1:
            p, order = logits.softmax(1).sort(dim=1, descending=True, stable=True)
            before = p.cumsum(1) - p  # (3): a token stays where those before it have too little
            beyond = torch.empty_like(p, dtype=torch.bool).scatter_(1, order, before >= self.top_p)
            logits = logits.masked_fill(beyond, -math.inf)
        return logits.log_softmax(1)


def beam_search(
    step: Step[S],
    logits: Float[Tensor, "batch vocab"],
    state: S,
    length: int,
    *,
    width: int,
    end: int,
    alpha: float = 1.0,
) -> tuple[Int64[Tensor, "batch time"], Float[Tensor, " batch"]]:
    """The sequence with the largest score (5) that a beam of `width` finds, and that score.

    Every open sequence may end at every step; those that go on are the `width` most probable ones.
    The search ends when no open sequence could still score better, since what is added to a sum of
    log-probabilities is never positive. What has not ended after `length` tokens is taken only
    where nothing has. After `end` there are only more of it.
    """
    if width < 1 or alpha < 0:
        raise UserError(
            f"a beam needs a width ({width}) of 1 or more, an alpha ({alpha}) of 0 or more"
        )
    batch, vocabulary = logits.shape
    most = min(width + 1, vocabulary)  # of a sequence that goes on: one of them may be `end`
    rows = torch.arange(batch, device=logits.device)
    state = take_beams(state, rows.repeat_interleave(width))
    logits = logits.repeat_interleave(width, 0)
    total = logits.new_full((batch, width), -math.inf, dtype=torch.double)
    total[:, 0] = 0  # all of the beam are the same sequence at first
    tokens = torch.full((batch, width, length), end, device=logits.device)
    best_tokens, best = tokens[:, 0].clone(), total[:, 0] - math.inf
    every = 1 if logits.device.type == "cpu" else AHEAD
    for t in range(length):
        before = total - normalizers(logits).view(batch, width)
        ended, which = ((before + logits[:, end].view(batch, width)) / (t + 1) ** alpha).max(
            1
        )  # (5)
        better = ended > best
        best = best.where(~better, ended)
        best_tokens = best_tokens.where(~better[:, None], tokens[rows, which])
        likeliest, token = (part.view(batch, width, most) for part in logits.topk(most, 1))
        going = (before[:, :, None] + likeliest).masked_fill(token == end, -math.inf)
        total, place = going.flatten(1).topk(width, 1)
        parent, token = place // most, token.flatten(1).gather(1, place)
        tokens = tokens.gather(1, parent[:, :, None].expand_as(tokens))
        tokens[:, :, t] = token
        could_reach = total[:, 0] / length**alpha
        if t + 1 == length or ((t + 1) % every == 0 and not bool((could_reach > best).any())):
            break
        state = take_beams(state, (rows[:, None] * width + parent).flatten())
        logits, state = step(token.flatten(), state)
    open_ended = best.isinf()  # nothing has ended
    best = best.where(~open_ended, total[:, 0] / length**alpha)
    return best_tokens.where(~open_ended[:, None], tokens[:, 0]), best
