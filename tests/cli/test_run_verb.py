"""`everynet run`, `resume`, `draw` and `runs`: from a name to a folder and on from there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from everynet.cli import speaks
from everynet.runs.job import Job
from everynet.runs.verbs import run as run_recipe
from tests.runs.sealed import reseal

MINE = Path(__file__).parent / "mine.py"


@pytest.fixture
def made(call):
    """Runs a recipe of mine.py quietly and gives its folder."""

    def run(name, *words):
        code, out, error = call("run", f"{MINE}:{name}", *words, "--quiet")
        assert (code, error) == (0, "")
        return Path(out.strip())

    return run


def log(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


# -------------------------------------------------------------------------------------------- run


def test_a_run_says_what_it_reached_and_what_to_try_next(call):
    code, out, error = call("run", f"{MINE}:flowers")
    assert code == 0
    (folder,) = Path("runs").iterdir()
    lines = out.splitlines()
    assert re.fullmatch(r"flowers: cross_entropy \d.\d+", lines[0])
    assert re.fullmatch(r"weights of step \d+ of \d+: best valid cross_entropy \S+", lines[1])
    assert lines[2] == "goal: cross_entropy <= 10: reached"
    assert lines[3] == f"pictures: {folder}/pictures (empty.png, network.png, learning-curve.png)"
    assert lines[4] == "try next:"
    assert len(lines) == 8
    assert all(re.match(r"  everynet \w+ .*\S +\S", line) for line in lines[5:])
    assert f"everynet predict {folder} FILE" in lines[5]
    assert f"--file {MINE} " in lines[5]
    assert "everynet sweep" in lines[6]
    assert "data=PATH" in lines[7]
    assert str(folder) in error  # the first line says where it goes


def test_the_commands_that_are_offered_work(call, refused):
    _, out, _ = call("run", f"{MINE}:double")
    offered = [line.split("  ")[1].split() for line in out.splitlines()[-3:]]
    assert len(offered) == 3
    for _, *words in offered:
        code, _, error = call(*words)
        assert code == 0, error


@pytest.mark.parametrize(
    ("name", "words", "line"),
    [
        ("ambitious", [], "goal: cross_entropy <= 0: NOT reached"),
        ("flowers", ["lr=0.2"], "goal not checked: settings were changed (lr)"),
        ("flowers", ["seed=3"], "goal: cross_entropy <= 10: reached"),
        ("average", [], "goal: error <= 1000: reached"),
        ("double", [], "goal: y >= 2: reached"),
    ],
)
def test_the_goal(call, name, words, line):
    code, out, _ = call("run", f"{MINE}:{name}", *words)
    assert code == 0
    assert line in out.splitlines()


def test_a_run_from_python_is_the_same_run(made, tmp_path):
    from everynet.recipes.catalog import find
    from everynet.recipes.settings import override

    mine = run_recipe(override(find(f"{MINE}:flowers"), {"seed": 4, "steps": 7}), tmp_path / "b")
    assert log(made("flowers", "seed=4", "steps=7")) == log(mine.folder)


def test_out_says_where(call, tmp_path):
    code, out, _ = call("run", f"{MINE}:double", "--out", "else/where", "--quiet")
    assert code == 0
    assert Path(out.strip()).parent == Path("else/where")
    assert (Path(out.strip()) / "card.md").is_file()


def test_epochs_become_steps(made):
    assert log(made("flowers", "epochs=1"))[-1]["step"] == 6


def test_precision_and_device_reach_the_run(made):
    folder = made("flowers", "--precision", "fp64", "--device", "cpu")
    where = json.loads((folder / "environment.json").read_text())
    assert (where["precision"], where["device"], where["compile"]) == ("fp64", "cpu", False)


def test_of_several_processes_one_speaks(call, monkeypatch):
    """Of those started together: a RANK without WORLD_SIZE means nothing."""
    monkeypatch.setenv("RANK", "1")
    assert call("run", f"{MINE}:double")[1].startswith("double: y 2\n")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not speaks()
    monkeypatch.setenv("RANK", "0")
    assert speaks()


def test_a_real_process(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "everynet", "run", f"{MINE}:double", "value=3"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert ran.stdout.startswith("double: y 6\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonet"], r"there is no recipe nonet; did you mean \S+, \S+ or \S+\?"),
        (["./none.py"], r"there is no file ./none.py"),
        ([f"{MINE}"], r".*mine.py holds 8 recipes; name one of flowers, .*"),
        ([f"{MINE}:flowres"], r".*mine.py has no recipe flowres; did you mean flowers, .*"),
        ([f"{MINE}:flowers", "lt=1"], r"flowers has no setting lt; did you mean lr, .* or .*\?"),
        ([f"{MINE}:flowers", "lr=fast"], r"lr \(fast\) must be a number"),
        ([f"{MINE}:flowers", "lr=0"], r"lr \(0.0\) must be a positive number"),
        ([f"{MINE}:flowers", "goal=1"], r"flowers has no setting goal; .*"),
        ([f"{MINE}:flowers", "steps=0"], r"steps \(0\) must be at least 1, or 0 with .*"),
        ([f"{MINE}:flowers", "optimizer=adm"], r"unknown optimizer 'adm'; did you mean adam, .*"),
        ([f"{MINE}:flowers", "data=irsi"], r"data \(irsi\) must be .*iris.*"),
        ([f"{MINE}:flowers", "batch_size=100000"], r"batch_size \(100000\) must be .*"),
        ([f"{MINE}:flowers", "lr=1", "lr=2"], r"lr is given twice; keep one of them"),
        ([f"{MINE}:flowers", "epochs=1", "steps=2"], r"epochs and steps must not both be given.*"),
        ([f"{MINE}:double", "epochs=1"], r"double has no setting epochs.*"),
        (["gradient-descent", "epochs=1"], r"gradient-descent has no setting epochs.*"),
        ([f"{MINE}:flowers", "fast"], r"fast must be a setting written name=value.*"),
    ],
)
def test_what_cannot_be_run(refused, words, message):
    assert re.fullmatch(message, refused("run", *words))
    assert not Path("runs").exists()


def test_a_device_that_is_not_there(refused):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has the device")
    for name in ("cuda", "cuda:1"):
        line = refused("run", f"{MINE}:flowers", "--device", name)
        assert re.fullmatch(rf"device \({name}\) must be present: .* try --device cpu", line)
        assert refused("run", f"{MINE}:flowers", "--device", name, "--dry-run") == line


def test_a_device_or_precision_that_a_recipe_does_not_know(refused):
    for words in (["--device", "cuda"], ["--precision", "fp32"], ["--compile"]):
        line = refused("run", f"{MINE}:double", *words)
        assert re.fullmatch(r"\w+ \(\w+\) must be \w+, because double is a .*; leave .* out", line)
        assert refused("run", f"{MINE}:double", *words, "--dry-run") == line


@pytest.mark.parametrize("words", [["lr=fast"], ["lt=1"], ["epochs=0"], ["epochs=1", "data=irsi"]])
def test_a_dry_run_refuses_what_a_run_refuses(refused, words):
    assert refused("run", f"{MINE}:flowers", *words, "--dry-run") == refused(
        "run", f"{MINE}:flowers", *words
    )


def test_a_folder_that_cannot_be_written(refused, tmp_path):
    (tmp_path / "file").write_text("in the way")
    line = refused("run", f"{MINE}:double", "--out", "file", "--quiet", code=4)
    assert line.startswith("cannot make file")


# ---------------------------------------------------------------------------------------- dry run


def test_a_dry_run_says_where_each_value_comes_from(call):
    words = ("lr=0.5", "epochs=3", "seed=0", "--dry-run", "--device", "cpu")
    code, out, error = call("run", f"{MINE}:flowers", *words)
    assert (code, error) == (0, "")
    assert not Path("runs").exists()
    rows = {line.split()[0]: line.split(None, 1)[1] for line in out.splitlines()}
    assert rows["lr"].split(None, 1) == ["0.5", "command line"]
    assert rows["steps"].split(None, 1) == ["18", "command line"]
    assert rows["seed"].split(None, 1) == ["0", "command line"]
    assert rows["batch_size"].split(None, 1) == ["16", "default of Flowers"]
    assert rows["optimizer"].split(None, 1) == ["adam", "default of Training"]
    assert rows["--device"].endswith("command line")
    assert rows["goal:"] == "cross_entropy <= 10 (not checked)"


def test_a_dry_run_of_the_zoo(call):
    _, out, _ = call("run", "mlp-xor", "--dry-run")
    assert re.search(r"^hidden +8 +recipe mlp-xor$", out, re.M)
    assert re.search(r"^clip +0.0 +default of Training$", out, re.M)
    assert re.search(r"^--device +\w+.* chosen$", out, re.M)
    assert out.endswith("goal: accuracy >= 0.99\n")


# ----------------------------------------------------------------------------------------- resume


def test_resume_goes_on_for_longer(call, made):
    folder = made("flowers", "steps=6")
    code, out, _ = call("resume", str(folder), "steps=12", "--file", str(MINE))
    assert code == 0
    assert out.startswith("flowers: cross_entropy ")
    rows = log(folder)
    whole = [row for row in log(made("flowers", "seed=0")) if "train" in row]
    assert [row for row in rows if "train" in row] == whole
    code, out, _ = call("resume", str(folder), "epochs=3", "--file", str(MINE), "--quiet")
    assert (code, out) == (0, f"{folder}\n")
    assert log(folder)[-1]["step"] == 18


def test_resume_finds_a_recipe_of_the_zoo(call, monkeypatch):
    monkeypatch.setattr(Job, "draw", lambda self, model: ())  # its pictures take seconds
    code, out, _ = call("run", "mlp-xor", "steps=3", "--quiet")
    folder = out.strip()
    assert code == 0
    assert call("resume", folder, "steps=5", "--quiet")[:2] == (0, out)
    assert log(Path(folder))[-1]["step"] == 5


def test_what_cannot_be_resumed(refused, made):
    folder = made("flowers")
    assert re.fullmatch(
        r".* was made by .*mine.py, which is not in the zoo; if you trust .*--file",
        refused("resume", str(folder)),
    )
    mine = ("--file", str(MINE))
    line = refused("resume", str(folder), "lr=1", *mine)
    assert line == "lr must stay as it was in the run; only steps and batch_size can be changed"
    assert refused("resume", "none").startswith("there is no run folder none")
    assert "is not a run folder" in refused("resume", "runs")
    (folder / "recipe.json").write_text("{")
    assert "recipe.json has been changed since" in refused("resume", str(folder), *mine)


# ------------------------------------------------------------------------------------------- draw


def test_draw_draws_the_same_again(call, made):
    folder = made("flowers")
    before = {path: path.read_bytes() for path in (folder / "pictures").iterdir()}
    for path in before:
        path.unlink()
    page, (card, *_) = folder / "card.md", before
    whole = page.read_text()
    page.write_text(whole.replace(f"({card.parent.name}/", "(elsewhere/").replace("*The ", "*An "))
    code, out, _ = call("draw", str(folder), "--file", str(MINE))
    assert code == 0
    assert page.read_text() == whole, "the card shows what was drawn, with its captions"
    assert {*map(Path, out.split())} == set(before)
    assert {path: path.read_bytes() for path in before} == before


def test_draw_writes_other_forms_beside_png(call, made):
    folder = made("flowers")
    words = ("draw", str(folder), "--file", str(MINE), "--format", "svg", "--format=pdf")
    code, out, _ = call(*words)
    first = {path: path.read_bytes() for path in map(Path, out.split())}
    assert code == 0
    assert {path.suffix for path in first} == {".png", ".svg", ".pdf"}
    names = {path.stem for path in first}
    assert len(first) == 3 * len(names)
    for path, content in first.items():
        begin = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[path.suffix]
        assert content.startswith(begin)
    assert call(*words)[0] == 0
    assert {path: path.read_bytes() for path in first} == first, "equal pictures are equal files"


def test_a_form_that_pictures_have_not(refused):
    said = refused("draw", "none", "--format", "jpg")
    assert re.fullmatch(r"draw: argument --format: invalid choice: 'jpg' \(.*png.*svg.*pdf.*", said)


def test_what_cannot_be_drawn(refused):
    assert refused("draw", "none") == "there is no run folder none; `everynet runs` lists them"


# ------------------------------------------------------------------------------------------- runs


def test_runs_are_listed(call, made):
    first = made("flowers")
    second = made("flowers", "lr=0.2", "steps=8")
    third = made("double")
    code, out, error = call("runs")
    assert (code, error) == (0, "")
    head, *rows = out.splitlines()
    assert head.split() == ["run", "recipe", "seed", "step", "state", "changed", "metrics"]
    found = {row.split()[0]: row for row in rows}
    assert set(found) == {str(first), str(second), str(third)}
    assert re.search(r"flowers +0 +12 +ended +cross_entropy \d.\d+$", found[str(first)])
    assert re.search(
        r"flowers +0 +8 +ended +steps=8 lr=0.2 +cross_entropy \d.\d+$", found[str(second)]
    )
    assert re.search(r"double +0 +1 +ended +y 2$", found[str(third)])
    assert call("runs", "--out", "runs") == (code, out, error)


def test_runs_side_by_side(call, made):
    first, second = made("flowers"), made("flowers", "lr=0.2", "steps=8")
    _, out, _ = call("runs", str(first), str(second))
    *above, last = out.splitlines(keepends=True)
    assert re.fullmatch(r"curves: runs/comparison-\d{8}-\d{6}-\w{6}.png\n", last)
    out = "".join(above)
    rows = {line.split()[0]: line.split() for line in out.splitlines()}
    assert out.splitlines()[0].split() == [first.name, second.name]
    assert rows["recipe"][1:] == ["flowers", "flowers"]
    assert rows["lr"][1:] == ["0.1", "0.2"]
    assert rows["steps"][1:] == ["12", "8"]
    assert rows["step"][1:] == ["12", "8"]
    assert rows["metrics"][2:] == ["test", "test"]
    assert rows["cross_entropy"][1] == f"{log(first)[-1]['test']['cross_entropy']:.6g}"
    assert "optimizer" not in rows
    assert out.endswith("17 settings are the same in all\n")


def test_runs_of_different_recipes(call, made):
    first, second = made("flowers"), made("double")
    _, out, _ = call("runs", str(first), str(second))
    assert re.search(r"^lr +0.1 +-$", out, re.M)
    assert re.search(r"^value +- +1.0$", out, re.M)
    assert re.search(r"^y +- +2$", out, re.M)


def test_one_run_shows_every_setting(call, made):
    _, out, _ = call("runs", str(made("flowers")))
    assert re.search(r"^optimizer +adam$", out, re.M)
    assert "the same" not in out


def test_a_run_that_has_not_ended(call, made):
    folder = made("flowers")
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:-1]) + '{"step": 1')  # killed in a line
    _, out, _ = call("runs")
    assert re.search(r" 12 +open +cross_entropy", out)
    (folder / "metrics.jsonl").write_text("")
    _, out, _ = call("runs")
    assert re.search(r"flowers +0 +0 +open$", out, re.M)
    assert re.search(r"^metrics of +-$", call("runs", str(folder))[1], re.M)


def test_a_damaged_run_does_not_hide_the_others(call, made, refused):
    good, bad = made("double"), made("double")
    (bad / "recipe.json").write_text('{"name": 3}')
    reseal(bad)
    _, out, _ = call("runs")
    assert str(good) in out
    assert f"{bad} is damaged: KeyError 'settings'" in out
    assert refused("runs", str(bad)) == f"{bad} is damaged: KeyError 'settings'"
    (bad / "metrics.jsonl").unlink()
    assert refused("runs", str(good), "none").startswith("none is no run, no recipe of the runs in")
    (bad / "recipe.json").write_text((good / "recipe.json").read_text())
    reseal(bad)
    assert re.fullmatch(r"cannot read .*metrics.jsonl: No such file.*", refused("runs", str(bad)))


def test_no_runs(call, refused):
    assert call("runs") == (0, "no runs in runs; try everynet run lenet\n", "")
    assert refused("runs", "--out", "none").startswith("there is no folder none;")
