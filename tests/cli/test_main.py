"""What every verb shares: how words are parsed, and how an error ends in one line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import everynet
from everynet import cli
from everynet.cli import VERBS, main, table
from everynet.system.errors import (
    CannotWrite,
    Failure,
    NoCheckpoint,
    NonFinite,
    Stopped,
    UserError,
    explain,
)
from everynet.system.wording import nearest, unknown

MINE = Path(__file__).parent / "mine.py"


def process(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "everynet", *words],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


# ------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["--debug"]])
def test_help_names_every_verb(call, words):
    code, out, error = call(*words)
    assert (code, error) == (0, "")
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\S", out, re.M)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb(call, verb):
    code, out, error = call(verb, "--help")
    assert (code, error) == (0, "")
    assert out.startswith(f"usage: everynet {verb}")
    assert "--debug" in out
    assert len(cli.import_verb(verb).HELP) < 80


def test_help_is_a_verb(call, refused):
    assert call("help") == call("--help")
    for verb in VERBS:
        assert call("help", verb) == call(verb, "--help")
    assert refused("help", "rnu").startswith("unknown verb 'rnu'; did you mean run, runs or ")
    assert refused("help", "train") == "unknown verb 'train'; write everynet help run"
    assert refused("help", "attack") == "unknown verb 'attack'; write everynet help run"


def test_version(call):
    assert call("--version") == (0, f"everynet {everynet.__version__}\n", "")


def test_a_real_process():
    ran = process("--version")
    assert (ran.returncode, ran.stdout) == (0, f"everynet {everynet.__version__}\n")
    ran = process("rnu")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "everynet: unknown verb 'rnu'; did you mean run, runs or resume?\n"


# ------------------------------------------------------------------------- words it cannot follow


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu"], r"unknown verb 'rnu'; did you mean run, runs or \w+\?"),
        (["train", "lenet"], r"unknown verb 'train'; write everynet run lenet"),
        (["generate", "R", "n=3"], r"unknown verb 'generate'; write everynet sample R n=3"),
        (["play", "R", "episodes=3"], r"unknown verb 'play'; write everynet sample R episodes=3"),
        (["attack", "R", "images=9"], r"unknown .* write everynet run pgd of=R images=9"),
        (
            ["complete", "R", "To be", "or", "n=1", "--out", "a"],
            r"unknown verb 'complete'; write everynet sample R 'prompt=To be or' n=1 --out a",
        ),
        (["Complete", "R", "n=1"], r"unknown verb 'Complete'; write everynet sample R n=1"),
        (["translate", "R", str(MINE)], rf".*'; write everynet predict R {MINE}"),
        (
            ["translate", "R", "It's", "late.", "beam=5"],
            r"""unknown .*; write echo 'It'"'"'s late.' \| everynet predict R - beam=5""",
        ),
        (["translate", "R"], r"unknown verb 'translate'; write everynet predict R -"),
        (["talk", "R"], r"unknown verb 'talk'; write everynet chat R"),
        (["talk"], r"unknown verb 'talk'; write everynet chat"),
        (["Run", "lenet"], r"unknown verb 'Run'; write everynet run lenet"),
        (["run", "LeNet"], r"there is no recipe LeNet; write lenet"),
        (["run", "lenet_mnist"], r"there is no recipe lenet_mnist; write lenet-mnist"),
        (["run", "lenet.py"], r"there is no file lenet.py; the recipe of that name is lenet"),
        (
            ["run", "lenet", "learning_rate=0.1"],
            r"lenet has no .*_rate; write lr=0.1",
        ),
        (["run", "lenet", "batch=32"], r"lenet has no setting batch; write batch_size=32"),
        (["run", "lenet", "epoch=5"], r"lenet has no setting epoch; write epochs=5"),
        (
            ["run", "lif", "epochs=5"],
            r"lif has .* because it is a simulation; it has .*",
        ),
        (
            ["run", "lenet", "device=cpu"],
            r"device is no .* option: write --device cpu",
        ),
        (["run", "lenet", "compile=true"], r"compile is no setting of .* write --compile"),
        (["sweep", "lenet", "learning_rate=1,2"], r"lenet has no setting .*; write lr=1,2"),
        (["run", "lenet", "--lr", "0.1"], r"run: --lr is no option; .*: write lr=0.1"),
        (["run", "lenet", "--learning-rate=0.1"], r"run: --learn.* is no option; .*: write lr=0.1"),
        (
            ["run", "./mine.py", "--batch-size", "8"],
            r"run: .* no option; .*: write batch_size=8",
        ),
        (["run", "lenet", "--seed"], r"run: --seed is no option; .*: write seed=..."),
        (["resume", "x", "--steps", "9"], r"resume: --steps is no option; .*: write steps=9"),
        (["--verbose"], r"unknown option '--verbose'; did you mean --version, --\w+ or --\w+\?"),
        (["run"], r"run: the following arguments are required: NAME.*"),
        (["resume"], r"resume: the following arguments are required: RUN.*"),
        (["predict", "x"], r"predict: the following arguments are required: INPUT.*"),
        (
            ["run", "a", "--devcie", "cpu"],
            r"run: unknown option '--devcie'; did you mean --dev.*",
        ),
        (
            ["run", "a", "--devcie=cpu"],
            r"run: unknown option '--devcie=cpu'; did you mean.*",
        ),
        (["run", "a", "--dev", "cpu"], r"run: unknown option '--dev'; did you mean --device.*"),
        (["run", "a", "--device", "gpu"], r"run: argument --device: invalid choice: 'gpu'.*"),
        (["run", "a", "--device"], r"run: argument --device: expected one argument"),
        (["run", "a", "--precision", "fp16"], r"run: argument --precision: invalid choice: .*"),
        (["draw", "a", "data=b", "c"], r"draw: unexpected argument c"),
        (["completion"], r"completion: the following arguments are required: bash\|zsh\|fish.*"),
        (["completion", "tcsh"], r"completion: argument bash\|zsh\|fish: invalid choice: 'tcsh'.*"),
    ],
)
def test_words_that_cannot_be_followed(refused, words, message):
    assert re.fullmatch(message, refused(*words))


def test_options_and_settings_stand_in_any_order(call):
    orders = (
        ("run", "--dry-run", f"{MINE}:double", "value=3", "--device", "cpu", "seed=1"),
        ("run", f"{MINE}:double", "value=3", "seed=1", "--device=cpu", "--dry-run"),
        ("--debug", "run", "--device", "cpu", f"{MINE}:double", "--dry-run", "value=3", "seed=1"),
    )
    assert len({call(*words) for words in orders}) == 1


# ---------------------------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (Failure("plain"), 1, "plain"),
        (UserError("two\n  lines"), 2, "two lines"),
        (ValueError("wrong"), 2, "wrong"),
        (NonFinite("nan"), 3, "nan"),
        (CannotWrite("full"), 4, "full"),
        (NoCheckpoint("none"), 5, "none"),
        (Stopped("asked", 2), 130, "asked"),
        (Stopped("asked", 15), 143, "asked"),
        (KeyError("x"), 1, "internal error: KeyError: 'x' (--debug shows where)"),
        (OSError("y"), 1, "internal error: OSError: y (--debug shows where)"),
        (
            MemoryError(),
            2,
            "there is not enough memory for this: choose a smaller network, batch or set of data",
        ),
    ],
)
def test_every_error_has_its_code_and_line(error, code, line):
    assert explain(error) == (code, line)


@pytest.mark.parametrize(
    ("fails", "code", "line"),
    [
        ("user", 2, "the user's mistake"),
        ("value", 2, f"{MINE} line 141: ValueError: a wrong value"),
        ("fault", 2, f"{MINE} line 141: IndexError: our mistake"),
    ],
)
def test_an_error_is_one_line_and_a_traceback_only_if_asked(call, refused, fails, code, line):
    words = ("run", f"{MINE}:double", f"fails={fails}", "--quiet")
    assert refused(*words, code=code) == line
    got, _, error = call(*words, "--debug")
    assert got == code
    assert error.startswith("Traceback (most recent call last)")
    assert error.endswith(f"everynet: {line}\n")


def test_ctrl_c(refused):
    assert refused("run", f"{MINE}:double", "fails=interrupt", "--quiet", code=130) == "stopped"


def test_a_pipe_that_closes_is_quiet():
    program = "import sys\nfrom everynet.cli import main\nsys.exit(main(['list']))"
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_a_narrow_encoding_is_no_error(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        MINE.read_text().replace("Doubles a number.", "Doubles \N{GREEK SMALL LETTER PI}.")
    )
    ran = process("show", f"{path}:double", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert ran.returncode == 0, ran.stderr
    assert "Doubles \\u03c0." in ran.stdout


def test_arguments_come_from_the_command_line_unless_given(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["everynet", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("everynet ")


# -------------------------------------------------------------------------------- small functions


def test_nearest():
    assert nearest("lenett", ["mlp", "lenet", "x", "lent"]) == "; did you mean lenet, lent or mlp?"
    assert nearest("x", []) == ""
    assert nearest("x", ["y"]) == "; did you mean y?"


def test_unknown():
    assert unknown("optimizer", "adm", ["adam"]) == "unknown optimizer 'adm'; did you mean adam?"
    assert unknown("depth", 19, [18, 34]) == "unknown depth 19; did you mean 18 or 34?"


def test_table():
    assert table([("a", "bb", ""), ("ccc", "d", "e")]) == "a    bb\nccc  d   e"


def test_a_working_folder_that_is_gone_is_one_line(refused, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for words in (["list"], ["run", "mlp-xor", "steps=1"], ["doctor"]):
        assert refused(*words).startswith(
            "the working folder must be there (No such file or directory), because data and runs"
        )
    monkeypatch.undo()
