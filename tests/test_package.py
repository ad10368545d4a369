"""What is given away: a wheel and a source archive, and a first run where only the wheel is."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from PIL import Image

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = ROOT / "constraints.txt"
OLDEST = ROOT / "constraints-oldest.txt"
LARGEST = 4_000_000  # bytes of an archive


def test_the_oldest_versions_that_are_allowed_are_those_that_are_tested():
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    ranges = [Requirement(text) for text in needed]
    lowest = {r.name: next(iter(r.specifier)).version for r in ranges if r.specifier}
    lines = [line for line in OLDEST.read_text().splitlines() if not line.startswith("#")]
    pinned = dict(line.split("==") for line in lines)
    assert {name: tuple(map(int, v.split("."))) for name, v in pinned.items()}.keys() == {*lowest}
    for name, version in lowest.items():
        assert re.fullmatch(re.escape(version) + r"(\.0)*", pinned[name]), name


def test_the_version_of_python_that_the_tests_run_on_is_named():
    named = {c.rpartition(" :: ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c}
    assert PROJECT["requires-python"].removeprefix(">=") in named


class Place:
    """An environment and a working folder outside of the repository."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "environment" / "bin"
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "EVERYNET_CACHE", "EVERYNET_DATA")
        self.variables = {k: v for k, v in os.environ.items() if k not in hidden}
        self.variables |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}

    def call(self, *words):
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def pip(self, *words):
        return self.call(self.bin / "python", "-m", "pip", "--disable-pip-version-check", *words)

    def everynet(self, *words):
        return self.call(self.bin / "everynet", *words)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An environment with the pinned versions and our wheel, built of the source archive."""
    place = Place(tmp_path_factory.mktemp("stranger"))
    place.call(getattr(sys, "_base_executable", sys.executable), "-m", "venv", "environment")
    torch = next(line for line in PINS.read_text().splitlines() if line.startswith("torch=="))
    place.pip("install", "-q", "hatchling", torch, "-c", PINS)
    place.call(
        place.bin / "python", "-c",
        f"import os; os.chdir({str(ROOT)!r}); from hatchling.build import build_sdist as build;"
        f"build({str(place.folder / 'dist')!r})",
    )  # fmt: skip
    archive = next((place.folder / "dist").glob("*.tar.gz"))
    place.pip("wheel", "-q", "--no-deps", "-w", "dist", archive)
    wheel = next((place.folder / "dist").glob("*.whl"))
    place.pip("install", "-q", "-c", PINS, wheel)
    return place


@pytest.mark.slow
def test_the_archives_hold_the_package_and_no_pictures(place):
    archive = next((place.folder / "dist").glob("*.tar.gz"))
    assert archive.stat().st_size < LARGEST
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"src/everynet/__init__.py", "README.md", "LICENSE", "tests/test_package.py"} <= names
    assert not [n for n in names if n.endswith((".png", ".webp")) or n.startswith("benchmarks")]
    wheel = next((place.folder / "dist").glob("*.whl"))
    assert wheel.stat().st_size < LARGEST
    with zipfile.ZipFile(wheel) as opened:
        inside = opened.namelist()
    sources = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("*.*")}
    sources = {name for name in sources if "__pycache__" not in name and "egg-info" not in name}
    assert sources <= {*inside}
    assert all(name.startswith("everynet") for name in inside)


@pytest.mark.slow
def test_it_is_the_wheel_that_runs(place):
    said = place.call(place.bin / "python", "-c", "import everynet; print(everynet.__file__)")
    assert said.startswith(str(place.folder))
    assert "mlp" in place.everynet("list")


@pytest.mark.slow
def test_first_runs_of_a_stranger(place):
    assert "goal: accuracy >= 0.96: reached" in place.everynet("run", "mlp")
    assert "accuracy" in place.everynet("run", "lenet", "steps=100")

    random = np.random.default_rng(0)
    rows = random.normal(size=(200, 2))
    lines = [f"{a},{b},{'high' if a + b > 0 else 'low'}" for a, b in rows.tolist()]
    (place.folder / "mine.csv").write_text("\n".join(["a,b,level", *lines]))
    place.everynet("run", "mlp", "data=mine.csv", "target=level", "steps=300")
    found = place.everynet("predict", "latest", "mine.csv").splitlines()
    assert len(found) == 200
    assert '"class": "high"' in found[int(rows.sum(1).argmax())]

    for label, level in (("dark", 40), ("light", 200)):
        (place.folder / "photos" / label).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(level - 30, level + 30, size=(24, 24, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(place.folder / "photos" / label / f"{number}.png")
    assert "pictures:" in place.everynet("run", "photos", "data=./photos", "steps=10")
    assert "dark" in place.everynet("predict", "latest", "photos/dark/0.png")
