"""Every mistake ends in exactly one line that names it, exit code 2, quickly and in little memory.

The cases come from three seeded generators: files of the user (tests/data/mutants.py), files of the
real sets (tests/data/damaged.py) and words of the command line (below). All are run in process;
twenty are run again as real processes.
"""

import json
import os
import random
import resource
import subprocess
import sys
import time
from functools import partial

import pytest

from everynet.cli import main
from everynet.recipes.catalog import entries, find
from everynet.recipes.settings import setting_types
from tests.data.damaged import cases
from tests.data.mutants import mutants

SECONDS, MEGABYTES = 2.0, 1000  # of CPU, and beyond the imports
NETWORKS = {"image": "cnn-mnist", "table": "mlp"}


def words_of_the_command_line(seed=0):
    """Wrong verbs, names, settings and values, each with what the line must hold."""
    draw = random.Random(seed)

    def misspelt(word):
        at = draw.randrange(len(word))
        return word[:at] + draw.choice("qzxj#".replace(word[at], "")) + word[at + 1 :]

    for verb in ("list", "show", "run", "resume", "runs", "draw", "predict", "doctor"):
        yield [misspelt(verb)], ("unknown verb", "did you mean")
    names = [entry.name for entry in entries()[0]]
    for name in names:
        yield ["run", misspelt(name)], ("did you mean",)
        kinds = setting_types(find(name))
        for field in draw.sample(list(kinds), 2):
            yield ["run", name, f"{misspelt(field)}=1"], ("no setting", "did you mean")
        numbers = [field for field, kind in kinds.items() if kind in (int, float)]
        for field in draw.sample(numbers, min(3, len(numbers))):
            wrong = draw.choice(["", "abc", "1e999", "nan", "--", "0x10", "1,2"])
            yield ["run", name, f"{field}={wrong}"], (field,)
    for setting, *said in (
        ("steps=0", "steps (0)"),
        ("steps=-5", "steps (-5)"),
        ("lr=0", "lr (0.0)"),
        ("lr=-1", "lr (-1.0)"),
        ("seed=-1", "seed (-1)"),
        ("seed=99999999999999999999", "seed"),
        ("batch_size=0", "batch_size (0)"),
        ("batch_size=10000000", "batch_size (10000000)"),
        ("optimizer=adm", "unknown optimizer 'adm'", "adam"),
        ("schedule=cosin", "unknown schedule 'cosin'", "cosine"),
        ("epochs=0", "epochs (0)"),
        ("epochs=x", "epochs (x)"),
        ("clip=-1", "clip (-1.0)"),
        ("weight_decay=-0.1", "weight_decay (-0.1)"),
        ("lr", "name=value"),
        ("=3", "name=value"),
    ):
        yield ["run", "mlp", setting], tuple(said)
    yield ["run", "mlp", "lr=1", "lr=2"], ("lr is given twice",)
    yield ["run", "mlp", "--device", "gpu"], ("--device",)
    yield ["run", "mlp", "--precision", "fp8"], ("--precision",)
    yield ["run", "mlp", "--devise", "cpu"], ("unknown option '--devise'", "--device")
    yield ["run", "./none.py"], ("none.py",)
    yield ["resume", "no-such-run"], ("no-such-run",)
    yield ["draw", "no-such-run"], ("no-such-run",)
    yield ["predict", "no-such-run", "x.png"], ("no-such-run",)
    yield ["runs", "no-such-run"], ("no-such-run",)
    yield ["data", "get", "minst"], ("minst", "mnist")
    yield ["data", "check", "no-such-folder"], ("no-such-folder",)
    yield ["list", "visoin"], ("visoin", "vision")
    yield ["completion", "csh"], ("csh",)
    yield ["show", "lenett"], ("lenett", "lenet")


def commands(folder):
    """(title, words of the command line, environment, what the line must hold)."""
    for mutant in mutants(folder / "mutants"):
        given = [f"{name}={value}" for name, value in mutant.arguments.items()]
        words = ["run", NETWORKS[mutant.kind], f"data={mutant.data}", *given]
        yield mutant.name, words, {}, mutant.words
    for case in cases(folder / "damaged"):
        network = "cnn-mnist" if case.name.startswith("cifar") else "mlp-mnist"
        words = ["run", network, f"data={case.name}"]
        yield case.title, words, {"EVERYNET_DATA": str(case.folder)}, case.words
    for words, said in words_of_the_command_line():
        yield " ".join(words), words, {}, said


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    return list(commands(tmp_path_factory.mktemp("bad")))


def test_there_are_at_least_two_hundred(trials):
    assert len(trials) >= 200


def test_each_is_one_line_exit_two_and_cheap(trials, capfd, monkeypatch, tmp_path):
    main(["run", "mlp", "--dry-run"])  # the imports
    main(["run", "lenet", "data=none"])
    capfd.readouterr()
    monkeypatch.chdir(tmp_path)
    faults = []
    for title, words, environment, said in trials:
        before, begun = peak(), time.process_time()
        with monkeypatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
            for name, value in environment.items():
                patch.setenv(name, value)
            code = main(words)
        seconds, megabytes = time.process_time() - begun, peak() - before
        out, err = capfd.readouterr()
        lines = err.splitlines()
        good = (
            code == 2
            and out == ""
            and len(lines) == 1
            and all(word in err for word in said)
            and "Traceback" not in err
            and seconds < SECONDS
            and megabytes < MEGABYTES
        )
        if not good:
            faults.append((title, words, said, code, out, err[:300], seconds, megabytes))
    assert not faults, "\n".join(map(str, faults[:20])) + f"\n{len(faults)} of {len(trials)}"
    assert not list(tmp_path.glob("runs*")), "a mistake leaves no folder behind"


FORKS = """
import json, os, runpy, sys
import everynet.cli, everynet.runs
from everynet.recipes.catalog import entries, find

cases, names = json.load(sys.stdin), [entry.name for entry in entries()[0]]
for words, _ in cases:
    [find(word) for word in words if word in names]  # the imports, which take seconds
for number, (words, environment) in enumerate(cases):
    child = os.fork()
    if child == 0:
        for stream in (1, 2):
            os.dup2(os.open(f"{number}-{stream}", os.O_WRONLY | os.O_CREAT), stream)
        os.environ.update(environment)
        sys.argv = ["everynet", *words]
        try:
            runpy.run_module("everynet", run_name="__main__")
        except SystemExit as end:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)  # to take all modules down costs another second
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def judge(trial, code, out, err):
    title, _, _, said = trial
    assert (code, out) == (2, ""), (title, code, out, err)
    assert len(err.splitlines()) == 1, (title, err)
    assert all(word in err for word in said), (title, said, err)


def test_twenty_as_real_processes(trials, tmp_path):
    """All forked from one that has the imports done, and one of them from nothing."""
    chosen = random.Random(0).sample(trials, 20)
    chosen = [t for t in chosen if not any("\0" in word for word in t[1])]  # cannot be started
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    start = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    given = json.dumps([trial[1:3] for trial in chosen])
    done = start([sys.executable, "-c", FORKS], input=given, env=environment, check=True)
    codes = [int(line) for line in done.stdout.split()]
    for number, (trial, code) in enumerate(zip(chosen, codes, strict=True)):
        out, err = ((tmp_path / f"{number}-{stream}").read_text() for stream in (1, 2))
        judge(trial, code, out, err)
    words = [sys.executable, "-m", "everynet", *chosen[0][1]]
    done = start(words, env=environment | chosen[0][2], check=False)
    judge(chosen[0], done.returncode, done.stdout, done.stderr)
