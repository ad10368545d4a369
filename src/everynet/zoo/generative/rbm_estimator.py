"""A restricted Boltzmann machine with scikit-learn's contract, learned by persistent chains.

    h'    ~ P(h|v'),  v' ~ P(v|h')                              (1)  one Gibbs step of the chains
    W     <- W + lr/n (v^T P(h|v) - v'^T P(h|v'))               (2)  weights
    b, c  <- b + lr/n sum (v - v'),  c + lr/n sum (P(h|v) - P(h|v'))   (3)  biases
    PL(v) = m log sigma(F(v with unit i flipped) - F(v))        (4)  pseudo-likelihood

where v are n rows of data of m values from 0 to 1, v' as many chains, P and F are those of `rbm.py`
at T = 1, and i is drawn for each row. The gradient has a closed form, so that none is recorded:
data and chains are two halves of one matrix, the activations of both are one product and (2) is
another. Names, defaults and meanings are those of scikit-learn's BernoulliRBM, and so are its
updates; it computes in float32.

Tieleman (2008), "Training restricted Boltzmann machines using approximations to the likelihood
gradient", doi:10.1145/1390156.1390290.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from everynet.nn.estimator import Array, Caller, inputs, unsupervised
from everynet.system.errors import UserError
from everynet.zoo.generative.rbm import BoltzmannMachine


class RBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learns `components_` (hidden x visible), `intercept_hidden_` and `intercept_visible_`.

    Rows of X hold values from 0 to 1, the probabilities that a binary unit is on.
    """

    components_: Array
    intercept_hidden_: Array
    intercept_visible_: Array
    n_iter_: int

    def __init__(
        self,
        n_components: int = 256,
        learning_rate: float = 0.1,
        batch_size: int = 10,
        n_iter: int = 10,
        random_state: object = None,
    ) -> None:
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.random_state = random_state

    def fit(self, X: Array, y: object = None) -> Self:
        """Learn from rows of X, in their order, `n_iter` times; y is not used."""
        for name in ("n_components", "batch_size", "n_iter"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} ({getattr(self, name)}) must be at least 1")
        if not self.learning_rate > 0:
            raise UserError(f"learning_rate ({self.learning_rate}) must be above 0; try 0.1")
        x, form = unsupervised(self, X, keep_float32=True)
        learner = _Learner(x.float(), self.n_components, self.batch_size, self._generator(x))
        for _ in range(self.n_iter):
            for start in range(0, len(x), self.batch_size):
                learner.update(start, self.learning_rate)
        self.components_ = form.give(learner.weight.T.double())
        self.intercept_hidden_ = form.give(learner.hidden_bias.double())
        self.intercept_visible_ = form.give(learner.visible_bias.double())
        self.n_iter_ = self.n_iter
        return self

    def transform(self, X: Array) -> Array:
        """The probability that each hidden unit is on."""
        x, form = inputs(self, X)
        return form.give(self.network(form).hidden_given(x).detach())

    def gibbs(self, v: Array) -> Array:
        """The visible units after one Gibbs step from v, zeros and ones."""
        x, form = inputs(self, v)
        return form.give(self.network(form).gibbs(x, 1, generator=self._generator(x)))

    def score_samples(self, X: Array) -> Array:
        """The pseudo-likelihood of each row, by one unit of each that is drawn."""
        x, form = inputs(self, X)
        with torch.no_grad():
            source = self._generator(x)
            unit = torch.randint(x.shape[1], (len(x),), generator=source, device=x.device)
            return form.give(self.network(form).pseudo_likelihood(x, unit))  # (4)

    def network(self, form: Caller | None = None) -> BoltzmannMachine:
        """What was learned, as a network in float64: energies, Gibbs chains, estimates of Z."""
        check_is_fitted(self)
        form = form or Caller.of(self.components_)
        weight = form.take(self.components_).T
        net = BoltzmannMachine(*weight.shape).to(weight)
        for parameter, value in zip(
            (net.weight, net.visible_bias, net.hidden_bias),
            (weight, form.take(self.intercept_visible_), form.take(self.intercept_hidden_)),
            strict=True,
        ):
            parameter.data.copy_(value)
        return net

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _generator(self, x: Tensor) -> torch.Generator:
        number = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return torch.Generator(x.device).manual_seed(number)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags


class _Learner:
    """The parameters and chains while they are learned; every update writes in place.

    Units of chains are zeros and ones, so that a product in bfloat16 rounds only weights and
    probabilities, to eight bits, and sums in float32; on CPUs that have it, it takes a quarter of
    the time. Weights are kept and added to in float32.
    """

    def __init__(
        self,
        x: Float[Tensor, "rows visible"],
        hidden: int,
        batch: int,
        generator: torch.Generator,
    ) -> None:
        batch, visible = min(batch, len(x)), x.shape[1]
        self.x, self.generator = x, generator
        self.weight = 0.01 * torch.randn(visible, hidden, generator=generator, device=x.device)
        self.visible_bias, self.hidden_bias = x.new_zeros(visible), x.new_zeros(hidden)
        self.dtype = torch.bfloat16 if x.is_cpu and has_bfloat16() else torch.float32
        self.factor = self.weight.to(self.dtype)
        self.chains = x.new_zeros(batch, hidden, dtype=self.dtype)
        self.both = x.new_empty(2 * batch, visible, dtype=self.dtype)  # data, then chains
        self.p, self.h = x.new_empty(batch, visible), x.new_empty(2 * batch, hidden)
        self.u, self.u_hidden = x.new_empty(batch, visible), x.new_empty(batch, hidden)

    def update(self, start: int, lr: float) -> None:
        """One step of the chains and of the parameters, from the rows at `start`."""
        data = self.x[start : start + len(self.chains)]
        n = len(data)  # the last batch may be smaller
        both, chains, p, h = self.both[: 2 * n], self.chains[:n], self.p[:n], self.h[: 2 * n]
        p.copy_(chains @ self.factor.T).add_(self.visible_bias).sigmoid_()
        v_model = torch.lt(self.u[:n].uniform_(generator=self.generator), p, out=p)  # (1)
        both[:n], both[n:] = data, v_model
        h.copy_(both @ self.factor).add_(self.hidden_bias).sigmoid_()
        torch.lt(self.u_hidden[:n].uniform_(generator=self.generator), h[n:], out=chains)
        h[n:].neg_()
        self.weight.add_(both.T @ h.to(self.dtype), alpha=lr / n)  # (2)
        self.hidden_bias.add_(h.sum(0), alpha=lr / n)  # (3)
        self.visible_bias.add_(data.sum(0) - v_model.sum(0), alpha=lr / n)
        self.factor.copy_(self.weight)


def has_bfloat16() -> bool:
    """Whether the CPU multiplies matrices in bfloat16; elsewhere that is emulated, and slow."""
    known = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(known and known())
