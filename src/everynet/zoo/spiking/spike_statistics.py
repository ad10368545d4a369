"""How spikes fall: evenly or not, together or each neuron on its own, in waves or in none.

    CV = mean_i std_k(T_ik) / mean_k(T_ik),  T_ik = t_i^{k+1} - t_i^k     (1)  irregularity
    chi^2 = var_t(mean_i n_i(t)) / mean_i var_t(n_i(t))                   (2)  synchrony
    S(f) = power of the population rate at f / (2 nu / N)                 (3)  1 for Poisson

T_ik are the intervals between the spikes of neuron i, n_i(t) counts its spikes in the bin at t, N
neurons fire at nu on average. CV is 0 for a clock and 1 for a Poisson train; chi is 1 if all fire
at once and 1 / sqrt(N) if each fires on its own. Time is in seconds.

Golomb and Rinzel (1994), "Clustering in globally coupled inhibitory neurons", Physica D 72,
doi:10.1016/0167-2789(94)90214-3; Welch (1967), "The use of fast Fourier transform for the
estimation of power spectra", IEEE Transactions on Audio and Electroacoustics 15,
doi:10.1109/TAU.1967.1161901.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def variation(times: Float[Tensor, " spikes"], neurons: Int[Tensor, " spikes"], size: int) -> float:
    """Spread of intervals over their mean, over neurons with at least three; 0 where none has."""
    order = neurons.argsort(stable=True)  # spikes come in the order of time, and stay in it
    when, who = times[order], neurons[order].long()
    same = who[1:] == who[:-1]
    gaps, owner = when.diff()[same], who[1:][same]
    count = torch.bincount(owner, minlength=size).double()
    mean = torch.bincount(owner, gaps, minlength=size) / count
    squares = torch.bincount(owner, (gaps - mean[owner]).square(), minlength=size)
    known = count >= 3
    each = (squares / (count - 1)).sqrt() / mean  # (1)
    return each[known].mean().item() if known.any() else 0.0


def population(
    times: Float[Tensor, " spikes"], bins: int, width: float, dt: float
) -> Float[Tensor, " bins"]:
    """Spikes of all neurons in each bin of `width` from time 0; times lie on the grid of `dt`."""
    steps = (times / dt).round().long()  # no bin is missed by rounding
    return torch.bincount(steps // round(width / dt), minlength=bins).double()


def synchrony(counts: Float[Tensor, " bins"], neurons: Int[Tensor, " spikes"], size: int) -> float:
    """How alike neurons fire, from the population's counts and whose spikes they are.

    A bin must be shorter than the rest after a spike. 0 where none fires.
    """
    share = torch.bincount(neurons.long(), minlength=size) / len(counts)
    alone = (share * (1 - share)).mean()  # a bin has 0 or 1 spikes of a neuron
    together = (counts / size).var(correction=0)
    return (together / alone).sqrt().item() if alone > 0 else 0.0  # (2)


def spectrum(
    counts: Float[Tensor, " steps"], size: int, dt: float, span: float = 0.25
) -> tuple[Float[Tensor, " waves"], Float[Tensor, " waves"]]:
    """Frequencies up to 1 kHz and the power there over that of as many Poisson neurons.

    From counts in single steps: wider bins would fold the overtones of sharp waves onto low ones.
    The mean over stretches of `span`.
    """
    from scipy.signal import welch  # noqa: PLC0415 -- takes long to load, for those who need it

    rate = counts / (size * dt)
    length = min(len(counts), round(span / dt))
    f, power = welch(rate.numpy(), fs=1 / dt, nperseg=length, detrend="constant")
    some = (f > 0) & (f <= 1000)
    level = 2 * rate.mean().clamp(min=1e-12) / size
    return torch.from_numpy(f[some]), torch.from_numpy(power[some]) / level  # (3)
