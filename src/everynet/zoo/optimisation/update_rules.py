"""Seven ways to take a step down a gradient, each as its equations.

    g     = (1/B) sum_{i in batch} grad J_i(theta)        (1)   gradient of a batch of B samples

    theta <- theta - lr g                                 (2)   SGD

    v     <- b v + g                                      (3)   momentum: velocity
    theta <- theta - lr v                                 (4)   momentum: step

    theta <- theta - lr (g + b v)                         (5)   Nesterov, with the v of (3)
    g~    = grad J(phi + b u)                             (6)   Nesterov, look-ahead form: gradient
    u     <- b u - lr g~                                  (7)   ... velocity
    phi   <- phi + u                                      (8)   ... step;  theta = phi + b u

    r     <- r + g^2                                      (9)   AdaGrad: all squares so far
    r     <- b r + (1 - b) g^2,  r_0 = 0                  (10)  RMSProp: their running mean
    theta <- theta - lr g / (sqrt(r) + eps)               (11)  step of both

    m     <- b1 m + (1 - b1) g                            (12)  Adam: first moment
    s     <- b2 s + (1 - b2) g^2                          (13)  Adam: second moment
    m^, s^ = m / (1 - b1^t), s / (1 - b2^t)               (14)  Adam: both begin at 0, corrected
    theta <- theta - lr m^ / (sqrt(s^) + eps)             (15)  Adam: step

    c     = b1 m + (1 - b1) g                             (16)  Lion: smoothed gradient
    theta <- theta - lr (sign(c) + decay theta)           (17)  Lion: step
    m     <- b2 m + (1 - b2) g                            (18)  Lion: moment

theta are the weights, J the loss, lr the learning rate, t the number of the step; b, b1, b2 are
below 1, eps is small, and squares, roots, signs and quotients are taken entry by entry. A batch
drawn at random gives g without bias, with a variance in proportion to 1/B: B = 1 is SGD in the
narrow sense, B = N is gradient descent. Momentum takes of the order of sqrt(c) steps on a quadratic
of condition c where SGD takes c. Nesterov's rule takes the gradient where the velocity will carry
it, which brakes in time where momentum swings: (6)-(8) in phi is (3) and (5) in theta = phi + b u
with v = -u / lr. AdaGrad's step falls like 1 / sqrt(t) and in the end stops anywhere; RMSProp
forgets and goes on. The bias that (14) takes away is towards 0: without it the first steps of Adam
would have the wrong length; with it the first is -lr sign(g). Lion's steps all have that length.

Some texts have AdaGrad divide by sqrt(eps + r). (11) adds eps to the root, as Duchi et al. do and
torch does; where r is far above eps the two hardly differ.

Polyak (1964), "Some methods of speeding up the convergence of iteration methods"; Nesterov (1983),
"A method for solving the convex programming problem with convergence rate O(1/k^2)"; Duchi et al.
(2011), "Adaptive Subgradient Methods", JMLR 12; Tieleman and Hinton (2012), "Lecture 6.5:
RMSProp"; Kingma and Ba (2015), "Adam", arXiv:1412.6980; Chen et al. (2023), "Symbolic Discovery of
Optimization Algorithms", arXiv:2302.06675, whose search over programs by evolution found Lion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

Gradient = Callable[[Float[Tensor, "*shape"]], Float[Tensor, "*shape"]]
"""The gradient at a point; that of a batch drawn anew at each call, where it is stochastic."""
State = tuple[Float[Tensor, "*shape"], ...]
"""Moments and velocities that a rule keeps from step to step."""
Updated = tuple[Float[Tensor, "*shape"], State]
"""The weights and the state after a step."""


@dataclass(frozen=True)
class UpdateRule:
    """A pure function from theta, g and a state to the next theta and state; no optimiser.

    The optimisers that train networks are torch's, and `Lion` of everynet.nn.
    """

    lr: float | Float[Tensor, "*rates"]
    """Learning rate; a tensor gives many runs at once a rate each."""

    states: ClassVar[int] = 0
    """Tensors of its state, all zero before the first step."""

    def init_state(self, theta: Float[Tensor, "*shape"]) -> State:
        return tuple(torch.zeros_like(theta) for _ in range(self.states))

    def step(
        self, theta: Float[Tensor, "*shape"], g: Float[Tensor, "*shape"], state: State, t: int
    ) -> Updated:
        """Step number t = 1, 2, ... from theta, where the gradient is g."""
        raise NotImplementedError  # each rule below


@dataclass(frozen=True)
class SGDRule(UpdateRule):
    """Down the gradient."""

    def step(self, theta: Tensor, g: Tensor, state: State, t: int) -> Updated:
        return theta - self.lr * g, state  # (2)


@dataclass(frozen=True)
class MomentumRule(UpdateRule):
    """A heavy ball: steps along a weighted sum of all gradients so far."""

    beta: float = 0.9
    states: ClassVar[int] = 1

    def step(self, theta: Tensor, g: Tensor, state: State, t: int) -> Updated:
        (v,) = state
        v = self.beta * v + g  # (3)
        return theta - self.lr * v, (v,)  # (4)


@dataclass(frozen=True)
class NesterovRule(MomentumRule):
    """Momentum whose gradient is taken ahead, where the velocity leads."""

    def step(self, theta: Tensor, g: Tensor, state: State, t: int) -> Updated:
        (v,) = state
        v = self.beta * v + g  # (3)
        return theta - self.lr * (g + self.beta * v), (v,)  # (5)


@dataclass(frozen=True)
class AdaGradRule(UpdateRule):
    """Each weight has a learning rate of its own, which falls with its gradients so far."""

    eps: float = 1e-10
    states: ClassVar[int] = 1

    def step(self, theta: Tensor, g: Tensor, state: State, t: int) -> Updated:
        (r,) = state
        r = r + g**2  # (9)
        return theta - self.lr * g / (r.sqrt() + self.eps), (r,)  # (11)


@dataclass(frozen=True)
class RMSPropRule(UpdateRule):
    """AdaGrad that forgets: each gradient is measured by its own recent size."""

    beta: float = 0.99
    eps: float = 1e-8
    states: ClassVar[int] = 1

    def step(self, theta: Tensor, g: Tensor, state: State, t: int) -> Updated:
        (r,) = state
        r = self.beta * r + (1 - self.beta) * g**2  # (10)
        return theta - self.lr * g / (r.sqrt() + self.eps), (r,)  # (11)


@dataclass(frozen=True)
class AdamRule(UpdateRule):
    """Momentum and RMSProp in one, each corrected for its start at zero."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    states: ClassVar[int] = 2

    def step(self, theta: Tensor, g: Tensor, state: State, t: int) -> Updated:
        (m, s), (b1, b2) = state, self.betas
        m = b1 * m + (1 - b1) * g  # (12)
        s = b2 * s + (1 - b2) * g**2  # (13)
        m_hat, s_hat = m / (1 - b1**t), s / (1 - b2**t)  # (14)
        return theta - self.lr * m_hat / (s_hat.sqrt() + self.eps), (m, s)  # (15)


@dataclass(frozen=True)
class LionRule(UpdateRule):
    """The sign of a smoothed gradient: every weight moves by the same amount."""

    betas: tuple[float, float] = (0.9, 0.99)
    decay: float = 0.0
    states: ClassVar[int] = 1

    def step(self, theta: Tensor, g: Tensor, state: State, t: int) -> Updated:
        (m,), (b1, b2) = state, self.betas
        c = b1 * m + (1 - b1) * g  # (16)
        theta = theta - self.lr * (c.sign() + self.decay * theta)  # (17)
        return theta, (b2 * m + (1 - b2) * g,)  # (18)


RULES: dict[str, type[UpdateRule]] = {
    "sgd": SGDRule,
    "momentum": MomentumRule,
    "nesterov": NesterovRule,
    "adagrad": AdaGradRule,
    "rmsprop": RMSPropRule,
    "adam": AdamRule,
    "lion": LionRule,
}
"""By the names a recipe's `optimizer` has; the constants above are torch's defaults too."""


def descend(
    rule: UpdateRule, gradient: Gradient, theta: Float[Tensor, "*shape"], steps: int
) -> Float[Tensor, " times *shape"]:
    """The start and `steps` steps of a rule from it."""
    state, path = rule.init_state(theta), [theta]
    for t in range(1, steps + 1):
        theta, state = rule.step(theta, gradient(theta), state, t)
        path.append(theta)
    return torch.stack(path)


def nesterov_look_ahead(
    gradient: Gradient, phi: Float[Tensor, "*shape"], steps: int, lr: float, beta: float
) -> tuple[Float[Tensor, " times *shape"], Float[Tensor, " times *shape"]]:
    """Nesterov's rule as it was written: phi, and the points ahead where gradients are taken."""
    u, path, ahead = torch.zeros_like(phi), [phi], [phi]
    for _ in range(steps):
        g = gradient(phi + beta * u)  # (6)
        u = beta * u - lr * g  # (7)
        phi = phi + u  # (8)
        path.append(phi)
        ahead.append(phi + beta * u)
    return torch.stack(path), torch.stack(ahead)


def epoch_gradients(
    loss: Callable[[Float[Tensor, " dim"], Int[Tensor, " batch"]], Float[Tensor, ""]],
    theta: Float[Tensor, " dim"],
    rows: int,
    batch_size: int,
    generator: torch.Generator,
) -> Float[Tensor, "batches dim"]:
    """The gradient of each batch of one epoch at theta; loss(theta, batch) is a mean over rows."""
    order = torch.randperm(rows, generator=generator)
    gradients = []
    for batch in order.split(batch_size):
        point = theta.detach().requires_grad_()
        gradients.append(torch.autograd.grad(loss(point, batch), point)[0])  # (1)
    return torch.stack(gradients)
