"""Hashes of rows are those of hashlib, and splits those of before."""

import hashlib

import numpy as np
import pytest
import torch

from everynet.data import split
from everynet.kernels.row_hash import hash_rows


@pytest.mark.parametrize("prefix", ["", "everynet test ", "x" * 32])
def test_the_bits_are_those_of_sha_256(prefix):
    rows = np.array([*range(120), 999, 10**9, 2**63 - 1])
    wanted = [hashlib.sha256(f"{prefix}{row}".encode()).digest()[:7] for row in rows.tolist()]
    assert hash_rows(prefix, rows).tolist() == [int.from_bytes(sha) for sha in wanted]


def test_many_rows_are_split_as_few_are(monkeypatch):
    rows = np.arange(3000)
    few = split.rows_by_hash(rows), split.stratified(torch.from_numpy(rows % 3))
    named = np.array(split.by_hash(split.rows(3000)))
    for part, places in few[0].items():
        assert places.tolist() == np.flatnonzero(named == part).tolist()
    monkeypatch.setattr(split, "FEW", 100)
    many = split.rows_by_hash(rows), split.stratified(torch.from_numpy(rows % 3))
    assert all(torch.equal(few[0][part], many[0][part]) for part in split.PARTS)
    assert torch.equal(few[1], many[1])
