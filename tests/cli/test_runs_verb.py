"""`everynet runs` among many: which are listed, in what order, grouped, and drawn over each other.

The folders are written here as a run writes them, so that a thousand of them take no training.
"""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from everynet.recipes.run_names import run_folder
from everynet.recipes.trained import Trained
from everynet.system.errors import UserError
from everynet.system.manifest import sealed
from everynet.system.values import convert

LOG = [
    {"step": 1, "train": {"loss": 2.0}},
    {"step": 5, "valid": {"accuracy": 0.25, "loss": 1.0}},
    {"step": 9, "valid": {"accuracy": 0.5, "loss": 0.5}},
]


def written_run(name, recipe="lenet", *, ended=True, out="runs", figures=None, **changed):
    """A run folder with the files that listing reads."""
    settings = {"seed": 0, "lr": 0.001, "optimizer": "adam", "hidden": [8, 4], **changed}
    about = {
        "name": recipe,
        "class": "Task",
        "file": "",
        "goal": "",
        "changed": [key for key in changed if key != "seed"],
        "settings": settings,
    }
    rows = LOG + [{"step": 9, "test": figures or {"accuracy": 0.5}}] * ended
    contents = sealed({"recipe.json": json.dumps(about).encode()})
    contents["metrics.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    folder = Path(out) / name
    folder.mkdir(parents=True)
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    return folder


@pytest.fixture
def five():
    """Runs of two recipes; their dates are in another order than their names."""
    written_run("lenet-20260105-101010-aaa111", seed=0, figures={"accuracy": 0.90})
    written_run("lenet-20260104-101010-aaa222", seed=1, figures={"accuracy": 0.94})
    written_run("lenet-20260103-101010-aab333", lr=0.1, figures={"accuracy": 0.99})
    written_run("mlp-20260102-101010-bbb444", "mlp", optimizer="sgd", figures={"mse": 0.5})
    written_run("mlp-20260101-101010-ccc555", "mlp", ended=False)


def ends(out):
    """The last three letters of each run that is listed."""
    return [row.split()[0][-3:] for row in out.splitlines()[1:]]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], ["333", "222", "111", "555", "444"]),
        (["lenet"], ["333", "222", "111"]),
        (["m*"], ["555", "444"]),
        (["lenet", "ml?"], ["333", "222", "111", "555", "444"]),
        (["lr>0.01"], ["333"]),
        (["lr >= 0.001"], ["333", "222", "111", "555", "444"]),
        (["lenet", "lr<=0.01", "accuracy>0.9"], ["222"]),
        (["accuracy>=0.94"], ["333", "222"]),
        (["optimizer=sgd"], ["444"]),
        (["optimizer!=sgd", "mlp"], ["555"]),
        (["hidden=8,4", "seed==1"], ["222"]),
        (["state=open"], ["555"]),
        (["date<2026-01-03"], ["555", "444"]),
        (["--sort", "accuracy"], ["555", "111", "222", "333", "444"]),  # of 555 the validation's
        (["--sort", "-accuracy"], ["333", "222", "111", "555", "444"]),
        (["--sort", "date"], ["555", "444", "333", "222", "111"]),
        (["--sort", "-date", "lenet"], ["111", "222", "333"]),
        (["--sort=optimizer", "mlp"], ["555", "444"]),
    ],
)
def test_which_are_listed_and_in_what_order(call, five, words, found):
    code, out, error = call("runs", *words)
    assert (code, error) == (0, "")
    assert ends(out) == found


def test_seed_and_changed_settings_are_shown(call, five):
    rows = call("runs")[1].splitlines()
    assert re.search(r"aab333 +lenet +0 +9 +ended +lr=0.1 +accuracy 0.99$", rows[1])
    assert re.search(r"aaa222 +lenet +1 +9 +ended +accuracy 0.94$", rows[2])


def test_nothing_is_like_that(call, five):
    line = "no run of 5 in runs is like that; everynet runs lists them\n"
    assert call("runs", "lr>9") == (0, line, "")
    assert call("runs", "lr>9", "--json") == (0, "[]\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lrr>1"], r"no run has a setting or metric lrr; did you mean lr, .*"),
        (["lr>fast"], r"lr>fast must compare with a number, such as lr>0.01"),
        (["--sort", "acuracy"], r"--sort \(acuracy\) must be a setting or .* accuracy, .*"),
        (["lenett"], r"lenett is no run, no recipe of .* and no condition .* lenet or mlp\?"),
        (["latest", "lr>0.01"], r"lr>0.01 chooses among runs and runs/\S+ is one; give one .*"),
        (["aaa111", "lenet"], r"lenet chooses among runs and .*"),
        (["--out", "a.png"], r"--out \(a.png\) must be a folder, unless several runs are compared"),
        (["--group", "--compare"], r"runs: argument --compare: not allowed with .* --group"),
    ],
)
def test_what_cannot_be_chosen(refused, five, words, message):
    assert re.fullmatch(message, refused("runs", *words))


def test_groups_of_seeds(call, five):
    written_run("lenet-20260106-101010-aaa666", seed=1, figures={"accuracy": 0.96})
    code, out, _ = call("runs", "--group")
    _, *rows = out.splitlines()
    assert code == 0
    assert re.fullmatch(r"lenet +1 +lr=0.1 +accuracy 0.99", rows[0])
    assert re.fullmatch(r"lenet +2 +- +accuracy 0.93 \(0.042\)", rows[1])  # seed 1 by its newest
    assert re.fullmatch(r"mlp +1 +optimizer=sgd +mse 0.5", rows[2])
    assert rows[3:] == [
        "left out: 1 that have not ended",
        "left out: 1 of a seed that has a newer one",
    ]
    (found,) = (g for g in json.loads(call("runs", "--group", "--json")[1]) if len(g["seeds"]) == 2)
    assert found["metrics"]["accuracy"] == pytest.approx(0.93)
    assert found["spread"]["accuracy"] == pytest.approx(0.06 / 2**0.5)


def test_for_other_programs(call, five):
    found = json.loads(call("runs", "lenet", "--sort", "date", "--json")[1])
    assert [run["metrics"]["accuracy"] for run in found] == [0.99, 0.94, 0.9]
    assert found[0]["changed"] == {"lr": 0.1}
    assert found[0]["settings"]["hidden"] == [8, 4]
    assert found[0]["date"] == "2026-01-03 10:10:10"
    rows = [*csv.DictReader(call("runs", "--csv")[1].splitlines())]
    assert [row["accuracy"] for row in rows] == ["0.99", "0.94", "0.9", "0.5", ""]
    assert rows[0]["lr"] == "0.1"
    assert rows[0]["run"] == "runs/lenet-20260103-101010-aab333"


def test_latex(five, call):
    """Columns of the folder are left out; what a run has not is a dash."""
    lines = call("runs", "--latex", "--sort", "run")[1].splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrlr}"
    assert lines[2] == r"recipe & seed & lr & accuracy & loss & optimizer & mse \\"
    assert lines[4] == r"lenet & 0 & 0.1 & 0.99 & -- & -- & -- \\"
    grouped = call("runs", "--latex", "--group")[1]
    assert r"lenet & 1,0 & -- & 0.92 & 0.02828 & -- & -- \\" in grouped


# ---------------------------------------------------------------------------------- comparing


def test_curves_are_drawn_beside_the_runs(call, five):
    code, out, _ = call("runs", "111", "latest", "222", "--sort", "seed")
    assert code == 0
    assert out.splitlines()[0].split() == [
        "lenet-20260105-101010-aaa111",
        "lenet-20260104-101010-aaa222",
    ]
    picture = Path(out.splitlines()[-1].removeprefix("curves: "))
    assert picture.parent == Path("runs")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    code, out, _ = call("runs", "lenet", "--compare", "--out", "mine.png")
    assert out.endswith("curves: mine.png\n")
    assert Path("mine.png").exists()


def test_no_picture_goes_into_a_run(call, refused, five):
    code, _, error = call(
        "runs", "lenet", "--compare", "--out", "runs/mlp-20260102-101010-bbb444/a.png"
    )
    assert code == 2
    assert re.match(r"everynet: --out \(.*a.png\) must not lie in a run", error)
    run = Path("runs/lenet-20260105-101010-aaa111")
    for name in ("one", "two"):
        written_run(name, out=run / "cells")
    _, out, _ = call("runs", str(run / "cells" / "one"), str(run / "cells" / "two"))
    assert Path(out.splitlines()[-1].removeprefix("curves: ")).parent == Path()


def test_simulations_have_no_curves(call):
    for name in "ab":
        folder = written_run(name)
        (folder / "metrics.jsonl").write_text('{"step": 1, "test": {"y": 2.0}}\n')
    assert call("runs", "a", "b")[1].endswith(
        "curves: none, because nothing was logged on the way\n"
    )


def test_a_long_log_is_read_from_its_end(call):
    folder = written_run("a")
    line = '{"step": 7, "train": {"loss": 1.0}}\n'
    (folder / "metrics.jsonl").write_text(line * 2000 + '{"step": 9, "test": {"y": 2.0}}\n')
    assert re.search(r" 9 +ended +y 2$", call("runs")[1])
    (folder / "metrics.jsonl").write_text('{"step": 1, "valid": {"y": 3.0}}\n' + line * 2000)
    assert re.search(r" 7 +open +y 3$", call("runs")[1])  # far above the end


# -------------------------------------------------------------------------- a run by its letters


def test_a_word_that_means_a_run(five):
    assert run_folder("latest") == run_folder("111") == Path("runs/lenet-20260105-101010-aaa111")
    assert run_folder("mlp-20260102-101010-bbb444") == Path("runs/mlp-20260102-101010-bbb444")
    assert run_folder("none") == Path("none")
    assert run_folder("some/where") == Path("some/where")
    written_run("a-x")
    written_run("b-x")
    with pytest.raises(UserError, match=r"^-x is how 2 runs end; write more of a-x, b-x$"):
        run_folder("-x")
    Path("111").mkdir()
    assert run_folder("111") == Path("111")  # what is there is meant


@pytest.mark.parametrize("verb", ["resume", "draw", "sample"])
def test_every_verb_takes_letters(refused, five, verb):
    line = refused(verb, "111")
    assert "lenet-20260105-101010-aaa111" in line  # it went on to read that folder
    assert refused(verb, "zzz") == "there is no run folder zzz; `everynet runs` lists them"


def test_a_setting_takes_letters(five):
    assert convert("start", "111", Trained) == Trained("runs/lenet-20260105-101010-aaa111")
    assert convert("start", "latest", Trained) == convert("start", "111", Trained)
    assert convert("start", "", Trained) == Trained()
    written_run("a-111")
    with pytest.raises(UserError, match=r"^start: 111 is how 2 runs end; write more of "):
        convert("start", "111", Trained)


def test_no_latest(refused):
    line = "there is no latest run: runs holds none; try everynet run lenet"
    assert refused("draw", "latest") == line


# ------------------------------------------------------------------------------------- a thousand


def test_a_thousand_runs(tmp_path):
    for n in range(1000):
        written_run(f"lenet-20260101-{n:06}-{n:06x}", seed=n % 5, lr=0.001 * (n // 5))
    for words in (["runs"], ["runs", "lenet", "lr>0.01", "--sort", "-accuracy", "--compare"]):
        program = (
            f"import sys\nfrom everynet.cli import main\ncode = main({words!r})\n"
            "sys.exit(code or 'torch' in sys.modules or 'matplotlib' in sys.modules)"
        )
        ran = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(ran.pid, 0)
        ran.returncode = os.waitstatus_to_exitcode(status)
        assert ran.returncode == 0
        assert used.ru_utime + used.ru_stime < 2.0  # half a second on the machine it was made on
