"""A kind and a known set of one's own, each in one file outside the package, under every verb."""

import json
import sys
from pathlib import Path

import pytest

import everynet
from everynet.cli import main
from everynet.data import kinds, sets

KIND = '''
"""Ripples: waves of eight heights, one a line of a .ripple file."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch

from everynet.system import files
from everynet.data import Kind, register
from everynet.data.dataset import Data
from everynet.system.errors import UserError


@dataclass(frozen=True)
class Waves:
    name: str
    parts: dict
    digest: str
    split: str = "the last two fifths, one each to choose and to test"
    published: bool = False


def waves(name, rows):
    fifth = max(1, len(rows) // 5)
    parts = {"train": rows[: -2 * fifth], "valid": rows[-2 * fifth : -fifth], "test": rows[-fifth:]}
    digest = hashlib.sha256(rows.numpy().tobytes()).hexdigest()
    return Waves(name, {part: (rows,) for part, rows in parts.items()}, digest)


def lines(path):
    try:
        rows = [[float(word) for word in line.split()] for line in path.read_text().splitlines()]
        return torch.tensor(rows).reshape(-1, 8)
    except (ValueError, RuntimeError):
        raise UserError(f"{path} must hold eight numbers a line") from None


class Ripples(Kind):
    name = "ripples"
    about = "a .ripple file with eight heights a line"
    suffix = ".ripple"

    def matches(self, path):
        return path.suffix == ".ripple"

    def find(self, path, *, every: int = 1):
        return waves(str(path), lines(path)[::every])

    def data(self, samples, *, batch_size, seed=0):
        peak = float(samples.parts["train"][0].abs().max())
        spec = {"name": samples.name, "kind": "ripples", "task": "generation", "shape": [8],
                "classes": [], "split": samples.split, "peak": peak}
        splits = {part: (rows / peak,) for part, (rows,) in samples.parts.items()}
        return Data(splits, spec, batch_size, seed, samples.digest)

    def read(self, paths, spec):
        rows = [lines(Path(path)) / spec["peak"] for path in paths]
        names = [f"{p}:{i}" for p, some in zip(paths, rows) for i in range(len(some))]
        return names, torch.cat(rows)

    def write(self, made, spec, path):
        text = "".join(" ".join(f"{v:.6g}" for v in row) + chr(10)
                       for row in (made * spec["peak"]).tolist())
        files.write(path.with_suffix(".ripple"), text.encode())
        return [path.with_suffix(".ripple")]

    def count(self, samples, report):
        report.task, report.split = "generation", samples.split
        report.counts = {part: len(rows) for part, (rows,) in samples.parts.items()}


register(Ripples())
'''

SET = '''
"""Sine waves of every phase."""

import math

from everynet.data import Known, register


def make(count):
    import torch
    from ripples_kind import waves

    phase = torch.arange(int(count or 40))[:, None] * 0.7
    return waves("sines", 3 * torch.sin(phase + torch.arange(8) * math.pi / 4))


register(Known("sines", "ripples", "sine waves", "public domain", make=make))
'''

RECIPE = '''
"""Ripples: a linear autoencoder of waves (Pearson, 1901)."""

from dataclasses import dataclass

import ripples_kind
import ripples_set
import torch
from matplotlib.figure import Figure
from torch import nn

from everynet import Training
from everynet.data import load


@dataclass(frozen=True, kw_only=True)
class Pond(Training):
    """Waves through two numbers and back."""

    data: str = "sines"
    """A known set of ripples, or a .ripple file."""
    every: int = 0
    """Take every so many waves of a file; 0 takes all."""
    steps: int = 60
    batch_size: int = 8
    lr: float = 0.05

    def dataset(self):
        more = {"every": self.every} if self.every else {}
        return load(self.data, kind="ripples", batch_size=self.batch_size, seed=self.seed, **more)

    def model(self, data):
        size = data.spec["shape"][0]
        return nn.Sequential(nn.Linear(size, 2), nn.Linear(2, size))

    def objective(self, model, batch):
        return {"error": (model(batch[0]) - batch[0]).square().mean()}

    def picture_empty(self, model, data, history):
        return Figure(figsize=(1, 1))

    def predict(self, model, inputs, spec, *, digits: int = 3):
        back = model(inputs)
        errors = (back - inputs).square().mean(1).tolist()
        return [{"error": round(e, digits), "wave": wave} for e, wave in zip(errors, back)]

    def sample(self, model, spec, generator, *, n: int = 4):
        return model[1](torch.randn(n, 2, generator=generator))


RECIPES = {"pond": Pond(goal="error <= 0.01", covers=("M22",))}
'''


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Runs a command as a new process would: nothing is known of what an earlier one registered."""
    for name, text in (("ripples_kind", KIND), ("ripples_set", SET), ("mine", RECIPE)):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget():
        for name in [n for n in sys.modules if n.startswith(("ripples_", "everynet_"))]:
            del sys.modules[name]

    def run(*words, code=0):
        forget()
        with monkeypatch.context() as patch:
            for home in (kinds, sets):
                patch.setattr(home, "_added", {})
            got = main(words)
        out, error = capsys.readouterr()
        assert got == code, error
        return out if code == 0 else error

    yield run
    forget()


def ripple(path, rows=20):
    path.write_text("".join(" ".join(str((3 * i + k) % 5) for k in range(8)) + "\n"
                            for i in range(rows)))  # fmt: skip
    return path.name


def stamps():
    package = Path(everynet.__file__).parent
    return {p: p.stat().st_mtime_ns for p in package.rglob("*.py")}


def test_a_kind_and_a_set_of_ones_own_under_every_verb(call, tmp_path):
    before = stamps()
    wave = ripple(tmp_path / "mine.ripple")

    folder = call("run", "mine.py", "--quiet").strip()
    assert json.loads((tmp_path / folder / "spec.json").read_text())["spec"]["kind"] == "ripples"
    card = (tmp_path / folder / "card.md").read_text()
    assert "| data | sines, SHA-256 `" in card
    assert "| split | the last two fifths, one each to choose and to test |" in card
    assert "error <= 0.01: reached" in card

    answers = call("predict", folder, wave, "digits=2", "--file", "mine.py").splitlines()
    answers = [json.loads(line) for line in answers]
    assert [a["input"] for a in answers] == [f"mine.ripple:{row}" for row in range(20)]
    assert all(a["error"] == round(a["error"], 2) for a in answers)
    waves = [(tmp_path / a["wave"]).read_text() for a in answers]
    assert all(len(text.split()) == 8 for text in waves)
    assert len({a["wave"] for a in answers}) == 20  # a file for each
    assert Path(answers[7]["wave"]).name == "mine-7-wave.ripple"

    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        ripple(tmp_path / part / "same.ripple", rows=1)
    both = call("predict", folder, "a/same.ripple", "b/same.ripple", "--file", "mine.py")
    names = [Path(json.loads(line)["wave"]).name for line in both.splitlines()]
    assert names == ["same-0-wave.ripple", "same-0-2-wave.ripple"]

    made = call("sample", folder, "n=3", "--file", "mine.py", "--out", "new.ripple").split()
    assert made == ["new.ripple"]
    again = call("predict", folder, "new.ripple", "--file", "mine.py").splitlines()
    assert all(json.loads(line)["error"] < 0.01 for line in again)  # what it makes, it knows

    report = call("data", "check", wave, "kind=ripples", "--file", "ripples_kind.py")
    assert "mine.ripple: ripples, generation" in report
    assert "12 train, 4 valid, 4 test" in report
    halved = call("data", "check", wave, "kind=ripples", "every=2", "--file", "ripples_kind.py")
    assert "6 train, 2 valid, 2 test" in halved
    assert call("data", "check", wave, "--file", "ripples_kind.py") == report  # told by itself

    listed = call("data", "list", "--file", "ripples_set.py").splitlines()
    assert next(line.split()[:2] for line in listed if "sine" in line) == ["sines", "ripples"]

    shown = call("show", "mine.py")
    assert "settings of everynet predict RUN\n  digits  3" in shown
    assert "settings of everynet sample RUN\n  n  4" in shown
    assert "42 parameters" in shown

    own = call("run", "mine.py", f"data={wave}", "every=2", "steps=2", "batch_size=2", "--quiet")
    assert json.loads((tmp_path / own.strip() / "spec.json").read_text())["spec"]["name"] == str(
        tmp_path / wave
    )
    assert call("resume", own.strip(), "steps=4", "--file", "mine.py", "--quiet") == own
    assert call("draw", folder, "--file", "mine.py")
    assert stamps() == before


def test_mistakes_with_a_kind_of_ones_own_are_one_line(call, tmp_path):
    ripple(tmp_path / "mine.ripple")
    (tmp_path / "bad.ripple").write_text("1 2 three\n")
    own = ("--file", "ripples_kind.py")
    cases = {
        ("data", "check", "mine.ripple", "kind=riples", *own): "unknown kind 'riples'",
        ("data", "check", "mine.ripple", "kind=ripples"): "unknown kind 'ripples'",
        ("data", "check", "mine.ripple", "every=two", *own): "every (two) must be a whole number",
        ("data", "check", "mine.ripple", "size=3", *own): "size (3) must be left out, because",
        ("run", "mine.py", "data=bad.ripple"): "bad.ripple must hold eight numbers a line",
        ("run", "mine.py", "data=digits"): "digits) must be a .ripple file with eight heights",
        ("run", "lenet", "data=sines"): "data (sines) must be a known name or a path",
    }
    for words, expected in cases.items():
        error = call(*words, code=2)
        assert expected in error
        assert error.count("\n") == 1
