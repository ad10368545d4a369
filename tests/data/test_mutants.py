"""Bad data ends in one line: it names the file or the field, quickly and in little memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from everynet.system.errors import UserError
from tests.data.either import load

from .mutants import mutants

MEASURE = """
import resource, sys, tempfile, time, warnings
from pathlib import Path
import everynet.data.sets.scikit, everynet.data.images.folder
from tests.data.either import load
from everynet.system.errors import UserError
from tests.data.mutants import mutants

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MB

warnings.simplefilter("error")
print("began", file=sys.stderr, flush=True)  # before and after, the environment may speak
start, slowest, count = peak(), 0.0, 0
with tempfile.TemporaryDirectory() as folder:
    for mutant in mutants(Path(folder), seed=1):
        began = time.process_time()
        try:
            load(mutant.data, **{"batch_size": 2, **mutant.arguments})
        except UserError:
            count += 1
        slowest = max(slowest, time.process_time() - began)
print(count, slowest, peak() - start)
print("ended", file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return list(mutants(tmp_path_factory.mktemp("mutants")))


def test_there_are_enough_of_them(cases):
    assert len(cases) >= 300
    assert len({(case.data, *case.arguments.items()) for case in cases}) == len(cases)


def test_each_is_refused_in_one_line_that_names_what_is_wrong(cases):
    wrong = []
    for case in cases:
        try:
            load(case.data, **{"batch_size": 2, **case.arguments})
            wrong.append(f"{case.name}: was loaded")
        except UserError as error:
            message = str(error)
            if not message.isprintable() or not all(word in message for word in case.words):
                wrong.append(f"{case.name}: {message!r} must hold {case.words}")
    assert not wrong, "\n".join(wrong)


def test_the_same_seed_makes_the_same_files(tmp_path):
    def contents(folder):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        # the zip format stores the time of day
        return {
            path.relative_to(folder): path.read_bytes() for path in files if path.suffix != ".npz"
        }

    first, second = (list(mutants(tmp_path / name, seed=7)) for name in ("a", "b"))
    assert [case.name for case in first] == [case.name for case in second]
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_each_takes_under_two_seconds_and_a_gigabyte():
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE], cwd=root, capture_output=True, text=True, check=True
    )
    count, slowest, memory = map(float, ran.stdout.split())
    assert count >= 300
    assert slowest < 2  # s of CPU
    assert memory < 1000  # MB beyond the imports
    assert "began\nended\n" in ran.stderr, "nothing is said besides the one line of the error"
