"""Words that people bring from elsewhere, each with the one that means the same here."""

from __future__ import annotations

from collections.abc import Collection

SETTINGS = {
    "learning_rate": "lr",
    "rate": "lr",
    "eta": "lr",
    "batch": "batch_size",
    "batchsize": "batch_size",
    "bs": "batch_size",
    "epoch": "epochs",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "max_epochs": "epochs",
    "iterations": "steps",
    "iters": "steps",
    "max_iter": "steps",
    "max_steps": "steps",
    "num_steps": "steps",
    "n_steps": "steps",
    "optim": "optimizer",
    "optimiser": "optimizer",
    "opt": "optimizer",
    "scheduler": "schedule",
    "lr_schedule": "schedule",
    "lr_scheduler": "schedule",
    "wd": "weight_decay",
    "decay": "weight_decay",
    "l2": "weight_decay",
    "grad_clip": "clip",
    "clip_norm": "clip",
    "random_state": "seed",
    "random_seed": "seed",
    "dataset": "data",
    "data_dir": "data",
    "data_path": "data",
    "hidden_size": "hidden",
    "hidden_sizes": "hidden",
    "hidden_layer_sizes": "hidden",
    "warmup_steps": "warmup",
    "weights": "start",
    "pretrained": "start",
    "init_from": "start",
}
VERBS = {
    **dict.fromkeys(("train", "fit", "start", "learn", "simulate"), "run"),
    **dict.fromkeys(("ls", "models", "recipes", "search"), "list"),
    **dict.fromkeys(("info", "describe", "summary", "man"), "show"),
    **dict.fromkeys(("continue", "restart"), "resume"),
    **dict.fromkeys(("history", "compare", "log", "logs", "results"), "runs"),
    **dict.fromkeys(("plot", "picture", "pictures", "visualise", "visualize"), "draw"),
    **dict.fromkeys(("test", "eval", "score", "judge"), "evaluate"),
    **dict.fromkeys(("infer", "inference", "ask", "classify"), "predict"),
    **dict.fromkeys(("generate", "make"), "sample"),
    **dict.fromkeys(("datasets", "dataset", "download"), "data"),
    **dict.fromkeys(("create", "init", "template"), "new"),
    **dict.fromkeys(("grid", "tune"), "sweep"),
}
OPTIONS = ("device", "precision", "compile", "jobs", "out", "quiet")
"""What says how to compute or where to write, and is no setting of a network."""


def meant(word: str, known: Collection[str], others: dict[str, str] = SETTINGS) -> str:
    """The known word that another means: written otherwise, or a synonym; empty where none is."""
    plain = word.lower().replace("-", "_")
    alike = {name.lower().replace("-", "_"): name for name in known}
    return alike.get(plain) or alike.get(others.get(plain, ""), "")
