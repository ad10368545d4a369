"""Random numbers that are a function of integers: (seed, step) and nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def mix(*parts: int) -> int:
    """One 63-bit seed from several integers; neighbours give unrelated seeds (splitmix64)."""
    return mix_on(0, *parts) >> 1


def mix_on(state: int, *parts: int) -> int:
    """The 64 bits of which `mix` takes 63, from those of the parts before."""
    for part in parts:
        state = (state ^ (part & 0xFFFFFFFFFFFFFFFF)) + 0x9E3779B97F4A7C15
        state &= 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state


def generator(*parts: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of random numbers that is a function of `parts` and its device alone."""
    return torch.Generator(device).manual_seed(mix(*parts))


def seed(device: torch.device, *parts: int) -> None:
    """Seed torch's default generators from `parts`."""
    seed_torch(device, mix(*parts))


def seed_torch(device: torch.device, number: int) -> None:
    """Seed torch's default generators (`torch.manual_seed` costs a hundred times as much)."""
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number)
    elif device.type == "mps":
        torch.mps.manual_seed(number)


def seed_all(device: torch.device, *parts: int) -> None:
    """Seed torch's, Python's and numpy's generators from `parts`."""
    number = mix(*parts)
    seed_torch(device, number)
    seed_others(number)


def seed_others(number: int) -> None:
    """Seed Python's and numpy's generators, which costs 9 us."""
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)  # noqa: NPY002 -- the one that others draw from


def random_state() -> tuple[object, ...]:
    """The state of Python's and numpy's generators of random numbers."""
    _, keys, *rest = np.random.get_state()  # noqa: NPY002 -- the one that others draw from
    return random.getstate(), np.asarray(keys).tobytes(), *rest


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Python's and numpy's random numbers go on afterwards as if nothing had been drawn inside."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def seeded_by(*parts: int) -> Iterator[None]:
    """What torch draws on the CPU inside follows from `parts` alone, and nothing else changes."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(mix(*parts))
        yield
