"""Datasets that ship with scikit-learn: digits, four tables and two photographs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor

from everynet.data.images.standardize import digest
from everynet.data.samples import Pair, Samples
from everynet.data.split import stratified, three

_FIFTH = "a stratified random fifth is the test set"
_TENTH = "a tenth of the rest, by hash of the row number, is for validation"


def _parts(x: Tensor, y: Tensor, test: Tensor) -> dict[str, Pair]:
    return {part: (x[rows], y[rows]) for part, rows in three(test).items()}


def digits() -> Samples:
    """1,797 handwritten digits of 8x8 pixels with 17 levels of grey."""
    pixels, labels = datasets.load_digits(return_X_y=True)
    x = torch.from_numpy(pixels.astype(np.uint8)).reshape(-1, 1, 8, 8)
    y = torch.from_numpy(labels.astype(np.int64))
    return Samples(
        name="digits",
        parts=_parts(x, y, stratified(y)),
        digest=digest(x, y),
        split=f"{_FIFTH} (not the last rows, which other people wrote); {_TENTH}",
        classes=tuple("0123456789"),
        peak=16.0,
    )


def _table(name: str, load: Callable[[], Mapping[str, Any]]) -> Samples:
    bunch = load()
    x = torch.from_numpy(np.ascontiguousarray(bunch["data"], dtype=np.float64))
    real = "target_names" not in bunch
    y = torch.from_numpy(bunch["target"].astype(np.float64 if real else np.int64))
    test = stratified(torch.zeros(len(y)) if real else y)
    return Samples(
        name=name,
        parts=_parts(x, y, test),
        digest=digest(x, y),
        split=f"{'a random fifth is the test set' if real else _FIFTH}; {_TENTH}",
        classes=() if real else tuple(map(str, bunch["target_names"])),
        features=tuple(map(str, bunch["feature_names"])),
        task="regression" if real else "classification",
    )


def _photo(name: str) -> Samples:
    photo = datasets.load_sample_image(f"{name}.jpg")
    x = torch.from_numpy(photo.copy()).permute(2, 0, 1)[None].contiguous()
    pair = (x, torch.zeros(1, dtype=torch.int64))
    return Samples(
        name=name,
        parts={"train": pair, "valid": pair, "test": pair},
        digest=digest(x),
        split="one picture, the same in all three parts",
        classes=(name,),
        task="picture",
    )


iris = partial(_table, "iris", datasets.load_iris)
wine = partial(_table, "wine", datasets.load_wine)
breast_cancer = partial(_table, "breast-cancer", datasets.load_breast_cancer)
diabetes = partial(_table, "diabetes", partial(datasets.load_diabetes, scaled=False))
china, flower = (partial(_photo, name) for name in ("china", "flower"))
