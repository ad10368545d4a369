"""Our network beside Brian2's, which benchmarks/spiking_references.py ran and wrote down."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from everynet.zoo.spiking.network import LIFNetwork

FILE = Path(__file__).parent.parent / "references.json"
NETWORK = json.loads(FILE.read_text())["network"]
SETTINGS = NETWORK["settings"]


@pytest.mark.covers("N9")
@pytest.mark.parametrize("case", NETWORK["cases"])
def test_a_recurrent_network_spikes_as_in_brian2(case):
    """Not one spike of 100 neurons in 10,000 steps is missing or moved."""
    theirs, size = NETWORK["cases"][case], SETTINGS["neurons"]
    weights = scipy.sparse.csr_matrix(
        (np.array(NETWORK["weights"]), NETWORK["columns"], NETWORK["starts"]), shape=(size, size)
    )
    times = [SETTINGS["tau_s"], SETTINGS["tau_m"], theirs["tau_ref"], theirs["delay"]]
    drives = torch.tensor(NETWORK["drives"], dtype=torch.float64)
    found = LIFNetwork(weights, *times).simulate(SETTINGS["duration"], SETTINGS["dt"], drives)
    counts = torch.bincount(found.neurons.long(), minlength=size)
    last = torch.full((size,), -1.0, dtype=torch.float64)
    last.scatter_reduce_(0, found.neurons.long(), found.times / SETTINGS["dt"], "amax")
    assert sum(theirs["counts"]) > 2000
    assert counts.tolist() == theirs["counts"]
    assert last.round().long().tolist() == theirs["last"]
