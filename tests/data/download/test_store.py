import hashlib
import os
import subprocess
import sys
import tracemalloc

import pytest
import torch

from everynet import data
from everynet.data import kinds
from everynet.data.download import fetch, store
from everynet.data.download import package_index as index
from everynet.data.sets import everything
from everynet.system.errors import UserError
from tests.data.conftest import load_real
from tests.data.damaged import cases
from tests.data.either import real_set

# ------------------------------------------------------------------------------ the table


def real():
    return {name: known for name, known in everything().items() if known.forms}


def test_names_are_known_to_load():
    assert {"mnist", "fashion-mnist", "cifar10", "cifar10-small"} <= set(real())
    assert set(real()) <= set(data.names())


def test_every_content_has_a_checksum_and_every_set_a_source():
    for entry in real().values():
        assert entry.kind in (*kinds.ORDER, "weights", "judgements")  # these are no samples
        for form in entry.forms:
            sums = [content.sha256 for content in form.contents]
            assert len(set(sums)) == len(sums)
            assert all(len(digest) == 64 and int(digest, 16) for digest in sums)
            for source in form.sources:
                assert "project" in vars(source) or source.url.startswith("https://")


def test_the_digest_is_that_of_the_checksums():
    sums = "\n".join(content.sha256 for content in everything()["mnist"].forms[0].contents)
    assert everything()["mnist"].digest == hashlib.sha256(sums.encode()).hexdigest()
    assert len({entry.digest for entry in real().values()}) == len(real())


def test_sizes_are_those_of_the_images():
    assert everything()["mnist"].size == 70_000 * (28 * 28 + 1) + 2 * 16 + 2 * 8
    assert everything()["cifar10"].size == 60_000 * 3_073
    assert everything()["cifar10-small"].size == 12_000 * 3_073 + 4 * 128


def test_an_unknown_name():
    with pytest.raises(UserError, match=r"data \(minst\) must be a known set; did you mean mni"):
        store.named("minst")


# ------------------------------------------------------------------------------ places


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.fetched() == tmp_path / "everynet" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.fetched() == tmp_path / ".cache" / "everynet" / "data"


def test_a_folder_that_was_named_must_exist(monkeypatch, tmp_path):
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"EVERYNET_DATA \(.*none\) must be a folder that exists"):
        real_set("mnist")
    monkeypatch.setenv("EVERYNET_DATA", "")
    assert store.given() is None


def test_where_a_set_is(tiny, tmp_path, monkeypatch):
    entry = everything()["tiny"]
    assert store.where(entry) == "not here"
    for number, (name, content) in enumerate(tiny.files.items()):
        path = store.fetched() / "tiny" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        assert store.where(entry) == ("cache" if number == 3 else "in part in cache")
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    assert store.where(entry) == "cache"
    (tmp_path / "tiny").symlink_to(store.fetched() / "tiny")
    assert store.where(entry) == "EVERYNET_DATA"


def test_every_spelling_and_packing_is_found(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    (tmp_path / "tiny").mkdir()
    (content, *_) = tiny.contents
    for name in (content.name, content.name + ".gz", content.also, content.also + ".gz"):
        path = tmp_path / "tiny" / name
        path.write_bytes(b"")
        assert store.places(everything()["tiny"].forms[0]) == {content: path}
        path.unlink()


# ------------------------------------------------------------------------------ damaged files


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return list(cases(tmp_path_factory.mktemp("damaged")))


def test_the_cases_are_many_and_a_function_of_the_seed(damaged, tmp_path):
    assert len(damaged) >= 100
    again = list(cases(tmp_path))
    assert [case.title for case in again] == [case.title for case in damaged]
    for one, two in zip(damaged, again, strict=True):
        first, second = ([p for p in c.folder.rglob("*") if p.is_file()] for c in (one, two))
        assert [p.stat().st_size for p in first] == [p.stat().st_size for p in second]


def test_each_damaged_file_is_named_in_one_line_and_not_fetched_around(damaged, monkeypatch):
    """Nothing asks the network, and no case takes more memory than the content it should be."""

    def network(*_):
        raise AssertionError("a damaged file was fetched around")

    monkeypatch.setattr(index, "open_url", network)
    monkeypatch.setattr(index, "pages", network)
    for case in damaged:
        monkeypatch.setenv("EVERYNET_DATA", str(case.folder))
        tracemalloc.start()
        with pytest.raises(UserError) as caught:
            real_set(case.name)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        line = str(caught.value)
        assert "\n" not in line, case.title
        assert str(case.folder) in line, (case.title, line)
        for word in case.words:
            assert word in line, (case.title, line)
        assert peak < 120e6, (case.title, peak)
        with pytest.raises(UserError):
            fetch.get(case.name)


# ------------------------------------------------------------------------------ real data


def test_the_real_fixture_skips_without_a_folder_and_fails_without_a_file(monkeypatch, tmp_path):
    monkeypatch.delenv("EVERYNET_DATA", raising=False)
    with pytest.raises(pytest.skip.Exception, match="EVERYNET_DATA is not set"):
        load_real("mnist")
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="mnist is not whole there: it is not here"):
        load_real("mnist")
    for content in everything()["mnist"].forms[0].contents:
        path = tmp_path / "mnist" / content.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    with pytest.raises(pytest.fail.Exception, match=r"train-images-idx3-ubyte is damaged"):
        load_real("mnist")


@pytest.mark.parametrize(
    ("name", "moments", "counts", "first"),
    [
        (
            "mnist",
            (0.1307, 0.3081),
            [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
            [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
        ),
        ("fashion-mnist", (0.2860, 0.3530), [6000] * 10, [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]),
    ],
)
def test_real_grey_images(real, name, moments, counts, first):
    images = real(name)
    assert images.train_x.shape == (60_000, 1, 28, 28)
    assert images.test_x.shape == (10_000, 1, 28, 28)
    pixels = images.train_x.double() / 255
    assert (pixels.mean().item(), pixels.std().item()) == pytest.approx(moments, abs=5e-5)
    assert images.train_y.bincount().tolist() == counts
    assert images.train_y[:10].tolist() == first
    assert (images.name, images.digest) == (name, everything()[name].digest)


def test_real_colour_images(real):
    images = real("cifar10-small")
    assert images.train_x.shape == (10_000, 3, 32, 32)
    assert images.test_x.shape == (2_000, 3, 32, 32)
    assert images.train_y.bincount().tolist() == [1000] * 10
    assert images.test_y.bincount().tolist() == [200] * 10
    assert images.train_y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert images.test_y[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    mean = images.train_x.double().mean((0, 2, 3)) / 255
    torch.testing.assert_close(
        mean, torch.tensor([0.4914, 0.4822, 0.4465]).double(), atol=0.01, rtol=0
    )


# ------------------------------------------------------------------------------ light


def test_the_table_and_the_places_import_neither_torch_nor_numpy():
    script = (
        "import sys; from everynet.data.download import store; "
        "from everynet.data.sets import everything; "
        "[store.where(entry) for entry in everything().values() if entry.forms]; "
        "print([m for m in ('torch', 'numpy', 'urllib.request') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ, check=True
    )
    assert done.stdout.strip() == "[]"
