"""`check` goes on past what is wrong and reports all of it."""

import numpy as np
import pytest
from PIL import Image

from everynet.data import check
from everynet.system.errors import UserError
from tests.data.either import load
from tests.data.images.test_folder import fill, pixels
from tests.data.mutants import mutants


def test_a_good_folder(tmp_path):
    fill(tmp_path)
    report = check(tmp_path)
    data = load(tmp_path, batch_size=4)
    assert report.good
    assert report.counts == {part: data.rows(part) for part in ("train", "valid", "test")}
    assert report.sizes == {"6x6 grey": 40}
    assert sum(report.classes["cat"].values()) == 20
    assert str(report).splitlines()[0] == f"{tmp_path}: images, classification"
    assert str(report).splitlines()[-1] == "good"
    assert "class      dog: " in str(report)


def test_a_folder_with_everything_wrong(tmp_path):
    for part in ("train", "valid", "test"):
        fill(tmp_path / part, count=3)  # the same images in each part
    Image.fromarray(pixels(8, 9, 7, 3)).save(tmp_path / "train" / "cat" / "colour.jpg")
    for name in ("a.png", "b.png"):
        (tmp_path / "train" / "dog" / name).write_bytes(b"broken")
    report = check(tmp_path)
    assert not report.good
    assert report.sizes == {"6x6 grey": 18, "7x9 colour": 1}
    assert len(report.unreadable) == 2
    assert "a.png" in report.unreadable[0]
    assert len(report.duplicates) == 12
    assert report.refused == ""
    assert report.remarks[0].startswith("2 of 21 files were skipped: 2 cannot be read (train/dog/a")
    assert check(tmp_path, strict=True).refused == report.unreadable[0]
    text = str(report)
    assert "duplicate  and 2 more" in text
    assert f"duplicate  {tmp_path}/train/cat/0.png = {tmp_path}/valid/cat/0.png" in text
    assert text.endswith("not good")


def test_duplicates_within_a_part_are_none_of_its_business(tmp_path):
    for part, seed in (("train", 0), ("valid", 1), ("test", 2)):
        for label in ("cat", "dog"):
            (tmp_path / part / label).mkdir(parents=True)
            for number in range(2):
                image = Image.fromarray(pixels([seed, ord(label[0])], 6, 6))
                image.save(tmp_path / part / label / f"{number}.png")
    assert check(tmp_path).duplicates == []


def test_a_table_with_a_row_in_two_parts(tmp_path):
    lines = [f"{row},{row % 7},{'xy'[row % 2]}" for row in range(40)]
    (tmp_path / "a.csv").write_text("a,b,label\n" + "\n".join(lines))
    report = check(tmp_path / "a.csv", target="label")
    assert report.good
    assert report.sizes == {"2 features": 40}
    assert sum(report.classes["x"].values()) == 20
    lines += lines
    (tmp_path / "a.csv").write_text("a,b,label\n" + "\n".join(lines))
    report = check(tmp_path / "a.csv", target="label")
    assert report.duplicates
    assert report.good  # rows of few values are often equal: shown, and no fault
    for pair in report.duplicates:
        first, second = (int(name.split()[1]) for name in pair)
        assert first % 40 == second % 40
        assert pair[0].split()[-1] != pair[1].split()[-1]


def test_a_real_target_has_no_classes(tmp_path):
    random = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=random.normal(size=(40, 3)), y=random.normal(size=40))
    report = check(tmp_path / "a.npz")
    assert report.good
    assert report.task == "regression"
    assert report.classes == {}


def test_many_classes_are_shortened(tmp_path):
    random = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=random.normal(size=(600, 3)), y=np.arange(600) % 25)
    assert "class      and 5 more" in str(check(tmp_path / "a.npz"))


def test_a_path_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UserError, match="none must be a folder or a file that is there"):
        check(tmp_path / "none")


def test_every_mutant_is_reported_and_none_is_good(tmp_path):
    wrong = []
    for case in mutants(tmp_path):
        if (
            not case.data.startswith(str(tmp_path))
            or "none" in case.name
            or case.arguments.get("batch_size")
        ):
            continue
        try:
            strict = {"strict": True} if "strict" in case.arguments else {}
            report = check(case.data, target=str(case.arguments.get("target", "")), **strict)
        except UserError:
            continue
        if report.good or not str(report).replace("\n", "").isprintable():
            wrong.append(case.name)
    assert wrong == ["another size"], "many sizes are no fault, since size=N brings them to one"


def test_how_a_text_is_to_be_cut_is_tried(tmp_path):
    (tmp_path / "a.txt").write_text("the cat sat on a mat and saw it\n" * 60)
    report = check(tmp_path / "a.txt", tokens="bpe", vocabulary="270")
    assert report.good
    assert report.facts["as numbers"].endswith("text, 270 different byte-pair tokens")
    assert " bytes with vocabulary=" in report.facts["bpe"]
    for given, message in (
        ({"tokens": "foo"}, r"unknown tokens 'foo'; did you mean words, ch"),
        ({"vocabulary": "many"}, r"vocabulary \(many\) must be a whole number"),
        ({"tokens": "bpe", "vocabulary": "9"}, r"vocabulary \(9\) must be 0 or at least 257"),
        ({"sampler": "lanes"}, r"sampler \(lanes\) must be left out: it is for recipes"),
    ):
        with pytest.raises(UserError, match=message):
            check(tmp_path / "a.txt", **given)
