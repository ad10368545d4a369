"""`everynet sample`: what a generative network makes, in files that are named."""

import csv
from pathlib import Path

import pytest

from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs.job import Job
from everynet.runs.verbs import run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs without pictures: one that makes points, one that names classes, one without data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        out = tmp_path_factory.mktemp("runs")
        ring = override(find("gan-ring"), {"steps": 2, "hidden_size": 8, "held_out": 20})
        names = override(find("mlp"), {"steps": 2})
        return {r.name: str(run(r, out, device="cpu").folder) for r in (ring, names)}


def rows(path):
    header, *points = csv.reader(Path(path).read_text().splitlines())
    return header, [[float(value) for value in point] for point in points]


def test_points_are_written_as_a_table_and_a_picture(call, made):
    code, out, error = call("sample", made["gan-ring"], "n=20", "--out", "a/points.csv")
    assert (code, error) == (0, "")
    assert out.split() == ["a/points.csv", "a/points.png"]
    header, points = rows("a/points.csv")
    assert header == ["x", "y"]
    assert len(points) == 20
    assert Path("a/points.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_is_filled_and_one_is_made_where_none_is_named(call, made):
    _, out, _ = call("sample", made["gan-ring"], "n=3", "--out", "here")
    assert out.split() == ["here/samples.csv", "here/samples.png"]
    Path("v1.2").mkdir()
    _, out, _ = call("sample", made["gan-ring"], "n=3", "--out", "v1.2")
    assert out.split()[0] == "v1.2/samples.csv"
    _, out, _ = call("sample", made["gan-ring"])
    first = Path(out.split()[0])
    assert first.parent.name.startswith("gan-ring-")
    assert len(rows(first)[1]) == 500
    _, out, _ = call("sample", made["gan-ring"], "n=3")
    assert Path(out.split()[0]).parent != first.parent


def test_a_file_that_is_there_is_not_overwritten(call, refused, made):
    for name in ("a.csv", "b.png"):
        Path(name).write_text("mine")
    assert refused("sample", made["gan-ring"], "n=3", "--out", "a.csv") == (
        "--out (a.csv) must not be there yet, because it would be overwritten; name another file"
    )
    assert refused("sample", made["gan-ring"], "n=3", "--out", "b.csv") == (
        "--out (b.csv) must be another file, because b.png is there and the picture of the points "
        "would overwrite it"
    )
    assert sorted(path.name for path in Path().iterdir()) == ["a.csv", "b.png"]
    assert {path.read_text() for path in Path().iterdir()} == {"mine"}
    assert call("sample", made["gan-ring"], "n=3", "--out", "c.csv")[0] == 0


def test_the_seed_decides_every_byte(call, made):
    for name, words in {"a": (), "b": ("seed=0",), "c": ("seed=1",)}.items():
        call("sample", made["gan-ring"], "n=9", *words, "--out", f"{name}.csv")
    first = Path("a.csv").read_bytes()  # the run's own seed is 0
    assert Path("b.csv").read_bytes() == first != Path("c.csv").read_bytes()
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


def test_precision(call, made):
    for name in ("fp32", "fp64", "bf16"):
        call("sample", made["gan-ring"], "n=9", "--precision", name, "--out", f"{name}.csv")
    whole = [value for point in rows("fp32.csv")[1] for value in point]
    for name, close in (("fp64", 1e-5), ("bf16", 0.05)):
        found = [value for point in rows(f"{name}.csv")[1] for value in point]
        assert found == pytest.approx(whole, abs=close)
        assert found != whole


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("n=0",), "n (0) must be between 1 and 1,000,000: so many points are made"),
        (("n=9000000000000",), "n (9000000000000) must be between 1 and 1,000,000"),
        (("n=abc",), "n (abc) must be a whole number"),
        (("m=3",), "sample has no setting m"),
        (("n=1", "n=2"), "n is given twice"),
        (("points",), "points must be a setting written name=value"),
        (("seed=x",), "seed (x) must be a whole number"),
        (("seed=-1",), "seed (-1) must be at least 0 and below 2^63"),
        (("n=3", "--out", "a.jpg"), "--out (a.jpg) must end in .csv, because rows were made"),
        (("--device", "none"), "sample: argument --device: invalid choice"),
    ],
)
def test_mistakes_are_one_line(refused, made, words, line):
    assert refused("sample", made["gan-ring"], *words).startswith(line)
    assert list(Path().iterdir()) == []


def test_a_network_that_makes_nothing(refused, made):
    assert refused("sample", made["mlp"]) == "mlp does not generate samples"
    assert refused("sample", made["mlp"], "n=3") == "mlp does not generate samples"
    assert refused("sample", "none").startswith("there is no run folder none")


def test_show_names_the_settings(call):
    _, out, _ = call("show", "gan-ring")
    assert "settings of everynet sample RUN\n  n     500\n  film  false" in out
    assert "generator.0" in out
