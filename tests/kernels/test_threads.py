import numpy as np
import torch
from numba import prange

from everynet.kernels.threads import threaded


def _double(values):
    for i in prange(len(values)):
        values[i] *= 2


def test_each_form_is_stored_by_its_own_name():
    """One name for both, and a process would be given whichever was compiled first."""
    threads, names = torch.get_num_threads(), []
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            values = np.arange(5.0)
            loop = threaded(_double)
            loop(values)
            names.append(loop.py_func.__qualname__)
            assert values.tolist() == [0, 2, 4, 6, 8]
            assert bool(loop.targetoptions.get("parallel")) == (count > 1)
    finally:
        torch.set_num_threads(threads)
    assert names == ["_double_alone", "_double_together", "_double_alone"]
