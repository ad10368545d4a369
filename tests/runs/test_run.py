"""The run folder, what is printed while it grows, and what comes back from it."""

import hashlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import everynet
from everynet import runs
from everynet.data import load
from everynet.recipes.catalog import find
from everynet.recipes.recipe import Recipe
from everynet.recipes.settings import override
from everynet.runs.card import describe_result, order_metrics
from everynet.runs.log import Log, note_seconds, read_seconds, worth_logging
from everynet.runs.progress import Progress, duration
from everynet.system.errors import Stopped, UserError
from everynet.system.signals import catching_signals
from everynet.system.sources import digest_of
from everynet.zoo.optimisation.gradient_descent import Quadratic
from tests.runs.recipes import RECIPES
from tests.runs.sealed import reseal

RECIPE = replace(RECIPES["small"], name="small")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return runs.run(RECIPE, tmp_path_factory.mktemp("runs"), device="cpu")


def test_the_folder_holds_what_the_design_says(finished):
    names = {path.name for path in finished.folder.iterdir()}
    assert names == {
        "recipe.json", "environment.json", "spec.json", "manifest.json", "metrics.jsonl",
        "timing.jsonl", "checkpoints", "pictures", "card.md", "lock",
    }  # fmt: skip
    assert {p.name for p in (finished.folder / "checkpoints" / "12").iterdir()} == {
        "manifest.json", "model.safetensors", "state.json", "state.safetensors",
    }  # fmt: skip


def test_the_newest_two_checkpoints_and_the_best_are_kept(finished):
    names = {p.name for p in (finished.folder / "checkpoints").iterdir()}
    rows = [json.loads(x) for x in (finished.folder / "metrics.jsonl").read_text().splitlines()]
    valid = {r["step"]: r["valid"]["cross_entropy"] for r in rows if "valid" in r}
    bests = {min((s for s in valid if s <= kept), key=valid.get) for kept in (10, 12)}
    assert names == {"10", "12", *(f"best-{step}" for step in bests)}
    for step in bests:
        light = {p.name for p in (finished.folder / "checkpoints" / f"best-{step}").iterdir()}
        assert light == {"manifest.json", "model.safetensors"}


def test_the_card_tells_all(finished):
    page = (finished.folder / "card.md").read_text()
    for words in ("SHA-256 `noise`", "| seed | 0 |", "cross_entropy <= 0.5", "torch 2.", "cpu",
                  "| parameters | 44 |", "| lr | 0.05 |", "| time |", "everynet run"):  # fmt: skip
        assert words in page, words


def test_the_weights_kept_are_the_best_of_validation(finished):
    model = runs.load(RECIPE, finished.folder)
    data = RECIPE.dataset()
    x, y = data.splits["valid"]
    loss = torch.nn.functional.cross_entropy(model(x), y).item()
    rows = [json.loads(x) for x in (finished.folder / "metrics.jsonl").read_text().splitlines()]
    assert loss == pytest.approx(min(r["valid"]["cross_entropy"] for r in rows if "valid" in r))


def test_nothing_is_printed_unless_asked(tmp_path, capfd):
    runs.run(RECIPE, tmp_path, device="cpu")
    assert capfd.readouterr() == ("", "")
    runs.run(RECIPE, tmp_path, device="cpu", show=True)
    assert "small on cpu" in capfd.readouterr().err


def test_a_run_in_a_thread_works(tmp_path):
    found = []
    work = threading.Thread(target=lambda: found.append(runs.run(RECIPE, tmp_path, device="cpu")))
    work.start()
    work.join()
    assert found[0].metrics


def test_with_changed_settings_the_goal_is_not_checked(tmp_path):
    changed = replace(RECIPE, lr=0.01, changed=("lr",))
    result = runs.run(changed, tmp_path, device="cpu")
    assert result.reached is None
    card = (result.folder / "card.md").read_text()
    assert "| goal | not checked: settings were changed (lr) |" in card


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"is not a run folder: it has no recipe\.json"):
        runs.load(RECIPE, tmp_path)
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(UserError, match=r"has no manifest.json, because another version of"):
        runs.load(RECIPE, tmp_path)
    reseal(tmp_path)
    with pytest.raises(UserError, match=r"recipe\.json is damaged"):
        runs.load(RECIPE, tmp_path)
    (tmp_path / "recipe.json").write_text("[]")
    with pytest.raises(UserError, match=r"recipe\.json has been changed since it was written"):
        runs.load(RECIPE, tmp_path)
    reseal(tmp_path)
    with pytest.raises(UserError, match="must hold an object"):
        runs.load(RECIPE, tmp_path)


def test_changed_data_is_noticed_before_a_resume(finished):
    class Other(type(RECIPE)):
        def dataset(self):
            return replace(super().dataset(), digest="other")

    with pytest.raises(UserError, match="has changed since the run began"):
        runs.resume(Other(name="small"), finished.folder)


@pytest.mark.parametrize("rows", ["{\n{}\n", '{"step": 1, "said": 2}\n'])
def test_a_damaged_log_is_named(finished, tmp_path, rows):
    (tmp_path / "metrics.jsonl").write_text(rows)
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged"):
        Log.of(tmp_path)


def test_rows_grow_thinner_as_a_run_grows_longer():
    logged = [step for step in range(1, 100_001) if worth_logging(step)]
    assert logged[:1000] == list(range(1, 1001))
    assert len(logged) == 1000 + 900 + 900
    assert logged[-1] == 100_000


def test_seconds_add_up_over_sessions(tmp_path):
    assert read_seconds(tmp_path) == 0
    note_seconds(tmp_path, 4, 1.5)
    note_seconds(tmp_path, 8, 3.25)
    assert read_seconds(tmp_path) == 3.25


def test_a_terminal_gets_one_live_line_and_a_log_plain_lines(tmp_path):
    reader, writer = pty.openpty()
    with open(writer, "w") as terminal, (tmp_path / "log").open("w") as log:
        for stream in (terminal, log):
            progress = Progress(steps=1000, shown=True, stream=stream)
            progress.show(10, {"loss": 0.5})
            progress.show(20, {"loss": 0.25})
            progress.close()
        terminal.flush()
        live = ""
        while live.count("\n") == 0:
            live += os.read(reader, 10_000).decode()
    os.close(reader)
    assert live.count("\rstep") == 2
    assert live.count("\n") == 1
    first, second = (tmp_path / "log").read_text().splitlines()
    assert first.startswith("step 10/1,000  loss 0.5")
    assert "left" in second


def test_a_line_is_due_after_a_second_and_then_every_ten_in_a_log(monkeypatch, tmp_path):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with (tmp_path / "log").open("w") as log:
        progress = Progress(steps=10, shown=True, stream=log, _last=0.0)
        dues = []
        for now[0] in (0.5, 1.0, 10.5, 11.0):
            dues.append(progress.due())
            if dues[-1]:
                progress.show(1, {})
        assert dues == [False, True, False, True]
        assert not progress.due()
    assert not Progress(steps=10, shown=False).due()


def test_durations_read_well():
    assert [duration(s) for s in (5, 200, 7500)] == ["5 s", "3 min 20 s", "2 h 05 min"]


SECOND = """
import signal, sys
from everynet.system.signals import catching_signals
with catching_signals() as stop:
    signal.raise_signal(signal.SIGINT)
    print(stop.signal, flush=True)
    signal.raise_signal(signal.SIGTERM)
    print("still here")
"""


def test_the_second_signal_stops_at_once():
    command = [sys.executable, "-c", SECOND]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f"{int(signal.SIGINT)}\n", -signal.SIGTERM)


def test_signals_are_given_back():
    before = signal.getsignal(signal.SIGINT)
    with catching_signals():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_python_does_what_the_command_line_does(tmp_path):
    recipe = everynet.recipe("mlp-xor", steps=4)
    assert isinstance(recipe, Recipe)
    assert recipe.changed == ("steps",)
    result = everynet.run(recipe, out=tmp_path)
    net = everynet.load(result.folder)
    assert not net.training
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        everynet.nothing  # noqa: B018 -- the look-up is the test


def test_import_is_light():
    script = "import sys, everynet; print('torch' in sys.modules, 'numpy' in sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "False False\n"
    assert Path(everynet.__file__).with_name("py.typed").exists()


@dataclass(frozen=True, kw_only=True)
class Reads(Quadratic):
    """A simulation that reads two sets and a file."""

    notes: Path = Path()
    """A file that the result depends on."""

    def simulate(self, generator):
        for name in ("digits", "iris", "digits"):
            load(name, kind=("table", "image"), batch_size=8)
        return super().simulate(generator)


def test_all_that_is_read_is_recorded(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("one")
    recipe = replace(override(Reads().tiny(), {"notes": str(notes)}), name="reads")
    assert recipe.notes == notes
    folder = runs.run(recipe, tmp_path / "runs").folder
    stored = json.loads((folder / "spec.json").read_text())["read"]
    assert [entry["name"] for entry in stored] == [str(notes), "digits", "iris"]
    assert stored[0]["sha256"] == hashlib.sha256(b"one").hexdigest()
    assert stored[1]["sha256"] == load("digits", kind="image", batch_size=8).digest
    card = (folder / "card.md").read_text()
    for entry in stored:
        assert f"| read | {entry['name']}, SHA-256 `{entry['sha256']}` |" in card
    assert json.loads((folder / "recipe.json").read_text())["settings"]["notes"] == str(notes)
    runs.resume(recipe, folder)
    notes.write_text("two")
    with pytest.raises(UserError, match=r"notes.txt\) has changed since the run began: its SHA"):
        runs.resume(recipe, folder)
    with pytest.raises(
        UserError, match=r"notes \(.*gone\) must be a file that can be read: No such"
    ):
        runs.run(replace(recipe, notes=tmp_path / "gone"), tmp_path / "runs")


def test_the_sum_of_a_folder_follows_from_names_and_contents(tmp_path):
    sums = set()
    for name, text in (("a", "1"), ("a", "2"), ("b", "2")):
        folder = tmp_path / f"{name}{text}"
        folder.mkdir()
        (folder / name).write_text(text)
        sums |= {digest_of(folder, "x"), digest_of(folder, "x")}
    assert len(sums) == 3


def test_a_fitting_records_its_data(tmp_path):
    folder = runs.run(find("least-squares").tiny(), tmp_path).folder
    stored = json.loads((folder / "spec.json").read_text())
    assert stored["read"] == [{"name": stored["spec"]["name"], "sha256": stored["digest"]}]
    assert "| read |" not in (folder / "card.md").read_text()  # it is the data, which has a row


@pytest.mark.parametrize("name", ["least-squares", "gradient-descent"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"device": "cuda"}, r"device \(cuda\) must be cpu, because NAME is a \w+, computed on cpu "
                             r"in fp64; leave --device out"),
        ({"device": "mps"}, r"device \(mps\) must be cpu, because"),
        ({"device": "cuda:1"}, r"device \(cuda:1\) must be cpu, because"),
        ({"precision": "fp32"}, r"precision \(fp32\) must be fp64, because NAME is a \w+"),
        ({"compile": True}, r"compile \(true\) must be false, because NAME is a \w+"),
    ],
)  # fmt: skip
def test_what_a_recipe_is_not_computed_with_is_refused(name, given, words, tmp_path):
    recipe = replace(find(name).tiny(), name=name)
    with pytest.raises(UserError, match=words.replace("NAME", name)):
        runs.run(recipe, tmp_path, **given)
    assert not [*tmp_path.iterdir()]


def test_what_is_not_said_is_chosen_and_recorded(tmp_path, finished, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # which a simulation leaves alone
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    recipe = replace(find("gradient-descent").tiny(), name="gradient-descent")
    for given in ({}, {"device": "cpu", "precision": "fp64"}):
        folder = runs.run(recipe, tmp_path, **given).folder
        where = json.loads((folder / "environment.json").read_text())
        assert (where["device"], where["precision"]) == ("cpu", "fp64")
        assert ", fp64, 1 thread" in (folder / "card.md").read_text()
    trained = json.loads((finished.folder / "environment.json").read_text())
    assert (trained["device"], trained["precision"]) == ("cpu", "fp32")


class Endless(Quadratic):
    """A simulation that is interrupted in the middle, once."""

    interrupted: ClassVar[list[int]] = []

    def simulate(self, generator):
        if not self.interrupted:
            self.interrupted.append(1)
            signal.raise_signal(signal.SIGTERM)
        return super().simulate(generator)


def test_a_signal_ends_a_simulation_at_once_and_it_can_be_done_again(tmp_path):
    recipe = replace(Endless(name="endless").tiny(), name="endless")
    with pytest.raises(Stopped, match=r"stopped before it was done; do it again with: ") as stopped:
        runs.run(recipe, tmp_path)
    assert stopped.value.code == 143
    (folder,) = tmp_path.iterdir()
    assert runs.resume(recipe, folder).metrics["iterate_error"] < 1e-8
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_public_names_are_there():
    verbs = ("recipe", "run", "resume", "load", "trained", "sweep", "evaluate", "draw")
    assert all(callable(getattr(everynet, name)) for name in verbs)
    assert {*verbs, "Training", "Data", "zoo"} <= {*dir(everynet)}
    with pytest.raises(AttributeError, match="no attribute 'trian'; did you mean train"):
        _ = everynet.trian


def test_the_words_of_a_recipe_of_ones_own():
    from everynet import Data, Training

    assert Training.__module__ == "everynet.recipes.training"
    assert Data.none().steps_per_epoch == 0


@pytest.mark.parametrize("found", [{}, {"format": 1, "everynet": "0.0.9"}])
def test_a_run_folder_of_another_format_is_refused(finished, tmp_path, found):
    folder = shutil.copytree(finished.folder, tmp_path / "old")
    (folder / "environment.json").write_text(json.dumps(found))
    reseal(folder)
    with pytest.raises(
        UserError, match=r"was made by everynet .*run it again, or use that version"
    ):
        runs.load(RECIPE, folder)
    with pytest.raises(UserError, match="was made by everynet"):
        runs.resume(RECIPE, folder)


def test_what_is_printed_once_is_printed_once(capsys):
    first = Progress(1, shown=True)
    other = Progress(1, shown=True, once=first.once)
    for progress in (first, other, first):
        progress.say_once("why")
    assert capsys.readouterr().err == "why\n"


def test_the_card_begins_with_what_was_reached_and_ends_with_what_it_depends_on(finished):
    """Result, the learning curve first of the pictures, use, metrics, settings, sums."""
    page = (finished.folder / "card.md").read_text()
    parts = re.findall(r"^(?:## .*|\*\*.*|!\[.*)$", page, re.MULTILINE)
    assert re.match(r"\*\*cross_entropy [\d.]+\*\* on the test split \(goal .*reached\)", parts[0])
    assert parts[1].endswith("(pictures/learning-curve.png)")
    headings = [part for part in parts if part.startswith("## ")]
    assert headings == [
        "## How to use it", "## Metrics on the test split", "## Settings",
        "## Data, device and versions",
    ]  # fmt: skip
    assert f"everynet predict {finished.folder.name} FILE" not in page  # it has no predict
    assert f"everynet draw {finished.folder.name}" in page


def test_metrics_of_the_goal_come_first():
    recipe = replace(RECIPE, goal="b >= 1 and z <= 3")
    assert [*order_metrics(recipe, {"a": 0.0, "z": 1.0, "b": 2.0})] == ["b", "z", "a"]
    assert describe_result(recipe, {"a": 0.0, "z": 1.0}, None, 2.4).startswith("**z 1**")
