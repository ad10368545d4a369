"""README and the two guides: each command and snippet runs as it stands, on small files."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from everynet import runs
from everynet.cli import build_parser, main, overridden, parse_words
from everynet.data.sets import everything
from everynet.recipes import catalog, settings
from everynet.recipes.training import Training
from everynet.runs import job, verbs

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/getting-started.md", "docs/how-to.md")
LABELS = ("a fine film\tgood", "a dull plot\tbad", "lovely songs\tgood", "a silly cast\tbad")


def text(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page, kind):
    """The fenced blocks of a kind, in order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", text(page), re.M | re.S)


def commands(page, kind):
    """The commands of the blocks of a kind, without what stands behind a # as a remark."""
    lines = [line for block in blocks(page, kind) for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


RUN = {page: commands(page, "sh") for page in PAGES}
CHECKED = [words for page in PAGES for words in commands(page, "sh check")]


def images(folder, count, side=24):
    random = np.random.default_rng(count)
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = random.integers(0, 255, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the guides speak of."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("photos", "photos-of-may"):
        for place, sort in enumerate(("cat", "dog")):
            images(folder / name / sort, 12 + place)
    images(folder / "unsorted", 3)
    images(folder / "scans" / "images", 24)
    (folder / "scans" / "masks").mkdir()
    for path in (folder / "scans" / "images").iterdir():
        mask = (np.asarray(Image.open(path).convert("L")) > 128) * np.uint8(255)
        Image.fromarray(mask).save(folder / "scans" / "masks" / path.name)
    for name in ("new.jpg", "digit.png", "a.jpg", "b.jpg"):
        Image.open(folder / "unsorted" / "0.png").save(folder / name)
    rows = [f"{30 + n},{n % 5},{'north' if n % 2 else 'south'},{90 * n + 7 * (n % 5)}\n"
            for n in range(60)]  # fmt: skip
    for name in ("houses.csv", "new-houses.csv"):
        (folder / name).write_text("area,rooms,region,price\n" + "".join(rows))
    rows = [f"{n % 7},{n % 11},{'no' if n % 5 else 'yes'}\n" for n in range(100)]
    (folder / "customers.csv").write_text("calls,months,churned\n" + "".join(rows))
    (folder / "book.txt").write_text("The cat sat on the mat, and the dog ran after it.\n" * 90)
    labelled = [line.split("\t") for line in LABELS]
    (folder / "reviews.tsv").write_text(
        "".join(f"{sort}\t{words} {n}\n" for n in range(30) for words, sort in labelled)
    )
    (folder / "reviews.txt").write_text("a fine cast\na silly song\n")
    (folder / "pairs.en").write_text("".join(f"the house of {n}\n" for n in range(60)))
    (folder / "pairs.de").write_text("".join(f"das Haus der {n}\n" for n in range(60)))
    clips(folder / "clips")
    return folder


def clips(folder):
    import wave

    for sort, pitch in (("dog", 300), ("owl", 900)):
        (folder / sort).mkdir(parents=True)
        for number in range(12):
            tone = np.sin(np.arange(4000) * (pitch + 10 * number) / 8000 * 2 * np.pi)
            with wave.open(str(folder / sort / f"{number}.wav"), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes((12000 * tone).astype("<i2").tobytes())


@pytest.fixture
def small(monkeypatch):
    """Recipes in their small forms, one process, and no pictures, which take most of the time."""
    find, run = catalog.find, runs.run

    def in_one_process(recipe, out="runs", **how):
        return run(recipe, out, **{**how, "jobs": 1})

    for module in (catalog, settings, verbs):
        monkeypatch.setattr(module, "find", lambda name: find(name).tiny())
    monkeypatch.setattr(runs, "run", in_one_process)
    monkeypatch.setattr(job.Job, "draw", lambda *_: ())


def shortened(words):
    """A command whose training takes four steps, where it does not say how many."""
    if words[0] not in ("run", "sweep") or any(word.startswith("steps=") for word in words):
        return words
    training = isinstance(catalog.find(words[1]), Training)
    return [*words, "steps=4"] if training else words


def call(words):
    assert words[0] == "everynet", words
    return main(words[1:])


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("small")
def test_commands_run_as_they_stand(page, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(shutil.copytree(files, tmp_path / "work"))
    for words in RUN[page]:
        assert words[0] == "everynet", words
        code = main(shortened(words[1:]))
        said = capsys.readouterr()
        assert code == 0, f"{page}: {shlex.join(words)}\n{said.err}"


def test_there_are_commands_of_every_page():
    assert len(RUN["docs/getting-started.md"]) >= 12
    assert len(RUN["docs/how-to.md"]) >= 25
    assert len(CHECKED) >= 4


@pytest.mark.parametrize("words", CHECKED, ids=shlex.join)
def test_what_needs_a_machine_or_a_download_is_a_command(words):
    """It is understood by the parser of its verb, and its settings by its recipe."""
    launched = words.index("everynet") + 1
    verb, *rest = words[launched:]
    arguments = parse_words(build_parser(verb), rest)
    if verb in ("run", "sweep"):
        overridden(catalog.find(arguments.name), arguments.settings)
    if verb == "data":
        assert set(arguments.words[1:]) <= {*everything()}


@pytest.mark.parametrize("page", PAGES)
def test_what_the_library_is_shown_to_answer_is_what_it_answers(page, capsys):
    """A block of `$ everynet ...` and the line below it."""
    for command, line in re.findall(r"^\$ (everynet .*)\n(everynet: .*)$", text(page), re.M):
        assert call(shlex.split(command)) == 2
        assert capsys.readouterr().err.strip() == line


@pytest.mark.parametrize("page", PAGES)
def test_recipes_that_are_named_exist(page):
    """A word in backquotes in a table of recipes, or behind `everynet run`."""
    known = {entry.name for entry in catalog.entries()[0]}
    named = re.findall(r"everynet (?:run|show|sweep) ([a-z][a-z0-9-]*)", text(page))
    for row in re.findall(r"^\|.*\| ((?:`[a-z0-9-]+`(?:, )?)+) \|$", text(page), re.M):
        named += re.findall(r"`([a-z0-9-]+)`", row)
    assert named
    assert set(named) <= known
