"""Compiled loops for the CPU, each with a form in torch for other devices."""

import scipy.linalg  # noqa: F401 -- numba loads it at its first call, in the middle of a user's work
