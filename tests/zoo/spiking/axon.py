"""The equations of Hodgkin and Huxley as the paper and every textbook print them."""

import math

import torch


def values(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def paper(_time, state, current):
    """How fast V, m, h and n change (per ms), in plain Python."""
    v, m, h, n = state
    a_m, b_m = 0.1 * (v + 40) / (1 - math.exp(-(v + 40) / 10)), 4 * math.exp(-(v + 65) / 18)
    a_h, b_h = 0.07 * math.exp(-(v + 65) / 20), 1 / (1 + math.exp(-(v + 35) / 10))
    a_n, b_n = 0.01 * (v + 55) / (1 - math.exp(-(v + 55) / 10)), 0.125 * math.exp(-(v + 65) / 80)
    ions = 120 * m**3 * h * (v - 50) + 36 * n**4 * (v + 77) + 0.3 * (v + 54.387)
    return [
        current - ions,
        a_m * (1 - m) - b_m * m,
        a_h * (1 - h) - b_h * h,
        a_n * (1 - n) - b_n * n,
    ]
