"""The harness of the benchmarks: turns, ratios, those left out, and the page of results."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"

BENCHMARK = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import os, time
from pathlib import Path
from side_by_side import Contestant, Turn, arguments, race, table

def working(seconds):
    def prepare(job):
        def work():
            print("noise of a peer", flush=True)
            with open(job["log"], "a") as log:
                log.write(f"{{seconds}} {{os.environ['OMP_NUM_THREADS']}}\\n")
            time.sleep(seconds)
            return Turn(note="slept") if seconds > 0.1 else None
        return work
    return prepare

def breaking(job):
    raise RuntimeError("no compiler\\nsecond line")

def dying(job):
    return lambda: os._exit(3)

everyone = [
    Contestant("ours", working(0.02), "json", "pytest"),
    Contestant("peer", working(0.2), "json", reach=2.0),
    Contestant("fast", working(0.01), "json", reach=1.1),
    Contestant("absent", working(0.0), "no_such_package"),
    Contestant("broken", breaking),
    Contestant("dies", dying),
]
given = arguments("a test", everyone, repeats=3, rows=10)
job = {{"log": sys.argv[0] + ".log", "threads": 2, "clock": given.clock}}
print(table(race(Path(__file__), everyone, job, Path(sys.executable), given.repeats), "s"))
"""


@pytest.fixture
def side_by_side(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import side_by_side

    return side_by_side


def run(tmp_path, *arguments):
    script = tmp_path / "benchmark.py"
    script.write_text(BENCHMARK)
    command = [sys.executable, script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout, (tmp_path / "benchmark.py.log").read_text().splitlines()


def test_contestants_take_turns_and_each_round_begins_with_another(tmp_path):
    _, log = run(tmp_path)
    ours, peer, fast = "0.02 2", "0.2 2", "0.01 2"  # seconds and threads
    assert log == [ours, peer, fast, peer, fast, ours, fast, ours, peer]


def test_the_table_says_ratios_verdicts_and_who_is_left_out(tmp_path):
    said, _ = run(tmp_path)
    rows = {
        line.split("|")[1].strip(): line.split("|") for line in said.splitlines() if "|" in line
    }
    assert rows["ours"][6].strip() == "1.00"
    assert rows["ours"][2].strip() == pytest.__version__
    assert 2.0 < float(rows["peer"][6]) <= 11.0
    assert rows["peer"][7].strip() == ">= 2.00: reached"
    assert rows["fast"][7].strip() == ">= 1.10: **not reached**"
    assert float(rows["ours"][9]) > 5  # MB
    assert rows["peer"][10].strip() == "slept"
    reasons = {
        "absent": "ModuleNotFoundError: No module named 'no_such_package'",
        "broken": "RuntimeError: no compiler",
        "dies": "ended with 3",
    }
    for name, reason in reasons.items():
        assert f"{name} is left out: {reason}\n" in said
        assert f"left out: {reason}" in rows[name][3]


def test_a_contestant_may_say_its_own_time_and_set_up_counts_where_asked(side_by_side):
    ours = side_by_side.Contestant("ours", lambda job: print)
    built = side_by_side.Contestant("built", lambda job: print, reach=1.0, reach_total=10.0)
    results = [
        side_by_side.Result(ours, build=1.0, seconds=[1.0]),
        side_by_side.Result(built, build=29.0, seconds=[1.0]),
    ]
    row = side_by_side.table(results, "s").splitlines()[-1]
    assert ">= 1.00: reached; >= 10.00 with set-up (15.0): reached" in row


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("", True),
        ("--rows 10 --repeats 3", True),
        ("--rows 5", False),
        ("--repeats 1", False),
        ("--clock cpu", False),
        ("--only ours", False),
    ],
)
def test_a_short_run_is_not_whole(side_by_side, monkeypatch, given, whole):
    monkeypatch.setattr(sys, "argv", ["benchmark", *given.split()])
    assert side_by_side.arguments("a test", [], repeats=3, rows=10).whole is whole


def test_without_ours_there_is_no_table(side_by_side):
    ours = side_by_side.Contestant("ours", lambda job: print)
    with pytest.raises(SystemExit, match="ours cannot run: no data"):
        side_by_side.table([side_by_side.Result(ours, missing="no data")], "s")


def test_a_section_of_the_results_replaces_its_last_and_leaves_the_others(side_by_side, tmp_path):
    page = tmp_path / "RESULTS.md"
    side_by_side.write("one", ["## One", "old"], page)
    side_by_side.write("two", ["## Two", "kept"], page)
    before = page.read_text()
    side_by_side.write("one", ["## One", "new"], page)
    assert page.read_text() == before.replace("old", "new")
    assert before.startswith("# Results\n\n")
    assert before.index("## One") < before.index("## Two")


def test_the_best_turn_counts(side_by_side):
    contestant = side_by_side.Contestant("ours", lambda job: print)
    assert side_by_side.Result(contestant, seconds=[3.0, 1.0, 2.0]).best == 1.0
