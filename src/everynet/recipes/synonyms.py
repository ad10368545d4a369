"""Names of settings that people know from elsewhere, each with the one that means the same here."""

from __future__ import annotations

from collections.abc import Collection, Mapping

RENAMED_SETTINGS: dict[str, str] = {}
"""Settings that had another name in an older version: old name to new one.

The error for an old name gives the new one, as for a synonym.
"""
_ELSEWHERE = {
    "lr": "learning_rate rate eta",
    "batch_size": "batch batchsize bs",
    "epochs": "epoch num_epochs n_epochs max_epochs",
    "steps": "iterations iters max_iter max_steps num_steps n_steps",
    "optimizer": "optim optimiser opt",
    "schedule": "scheduler lr_schedule lr_scheduler",
    "weight_decay": "wd decay l2",
    "clip": "grad_clip clip_norm",
    "seed": "random_state random_seed",
    "data": "dataset data_dir data_path",
    "hidden": "hidden_size hidden_sizes hidden_layer_sizes",
    "warmup": "warmup_steps",
    "start": "weights pretrained init_from",
}
SETTINGS = {other: own for own, words in _ELSEWHERE.items() for other in words.split()}
SETTINGS |= RENAMED_SETTINGS
OPTIONS = ("device", "precision", "compile", "jobs", "out", "quiet")
"""Options of the command line that people write as settings: how to compute, where to write."""


def meant(word: str, known: Collection[str], synonyms: Mapping[str, str] = SETTINGS) -> str:
    """The known word that another means: written otherwise, or a synonym; empty where none is."""
    plain = word.lower().replace("-", "_")
    alike = {name.lower().replace("-", "_"): name for name in known}
    return alike.get(plain) or alike.get(synonyms.get(plain, ""), "")
