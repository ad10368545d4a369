"""A step of many carts with poles, one after the other, in a loop that the compiler vectorises.

Sine and cosine are their power series, which need no call for each cart: up to `REACH` they are
those of the processor's library but for rounding. The loop serves the CPU; `CartPole` has the same
step by whole tensors for other devices.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from everynet.kernels.compiled import compiled

GRAVITY, FORCE, TAU = 9.8, 10.0, 0.02  # m/s^2, N, s
CART, POLE, HALF_LENGTH = 1.0, 0.1, 0.5  # kg, kg, m
MASS = CART + POLE
REACH = 1.0
"""Largest angle of a pole, in radians; a game is over long before."""


Row: TypeAlias = NDArray[np.floating]


def step_carts(
    state: Float[Tensor, "games 5"], action: Int[Tensor, " games"]
) -> Float[Tensor, "games 5"]:
    """Position, velocity, angle, its velocity and the time after a step; columns are contiguous."""
    after = torch.empty(5, len(state), dtype=state.dtype)
    push = action.to(state.dtype).numpy()
    columns: list[Row] = [*state.T.contiguous().numpy(), push, *after.numpy()]
    _loop(*columns)
    return after.T


@compiled(fastmath={"contract", "reassoc", "nsz", "arcp"})
def _loop(  # noqa: PLR0917 -- columns of one array would not be vectorised
    x: Row, v: Row, angle: Row, w: Row, t: Row, action: Row,
    next_x: Row, shift: Row, next_angle: Row, turn: Row, next_t: Row,
) -> None:  # fmt: skip
    """The columns after a step; `shift` and `turn` are accelerations first, then velocities."""
    real = x.dtype.type  # of the same precision: Python's numbers would make all of it float64
    one, two, third, gravity, force = real(1), real(2), real(4 / 3), real(GRAVITY), real(FORCE)
    tau, mass, length = real(TAU), real(MASS), real(HALF_LENGTH)
    pole, share = real(POLE * HALF_LENGTH), real(POLE / MASS)
    s3, s5, s7, s9 = real(6), real(20), real(42), real(72)
    s11, s13, s15 = real(110), real(156), real(210)
    c2, c4, c6, c8 = real(2), real(12), real(30), real(56)
    c10, c12, c14 = real(90), real(132), real(182)
    for i in range(len(x)):
        z = angle[i] * angle[i]
        sine = one - z / s13 * (one - z / s15)
        sine = one - z / s7 * (one - z / s9 * (one - z / s11 * sine))
        sine = angle[i] * (one - z / s3 * (one - z / s5 * sine))
        cosine = one - z / c12 * (one - z / c14)
        cosine = one - z / c6 * (one - z / c8 * (one - z / c10 * cosine))
        cosine = one - z / c2 * (one - z / c4 * cosine)
        push = ((two * action[i] - one) * force + pole * w[i] * w[i] * sine) / mass
        spin = (gravity * sine - cosine * push) / (length * (third - share * cosine * cosine))
        turn[i] = spin
        shift[i] = push - share * length * spin * cosine
    for i in range(len(x)):  # few arrays in each loop: more are not vectorised
        next_x[i] = x[i] + tau * v[i]
        shift[i] = v[i] + tau * shift[i]
    for i in range(len(x)):
        next_angle[i] = angle[i] + tau * w[i]
        turn[i] = w[i] + tau * turn[i]
    for i in range(len(x)):
        next_t[i] = t[i] + one
