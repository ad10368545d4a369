"""Batches made ahead by a thread are those made on the spot, bit by bit, and the thread ends."""

import errno
import gc
import os
import signal
import threading
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from everynet import runs
from everynet.cli import main
from everynet.data import dataset as types
from everynet.data import prefetch as feed
from everynet.data.dataset import Data
from everynet.data.draws import Share
from everynet.data.images import decoded_cache as decoded
from everynet.data.images import folder
from everynet.runs import checkpoint
from everynet.system import cache, files, memory
from everynet.system.errors import Stopped, UserError
from everynet.training.device import choose
from everynet.training.loop import begin, evaluate, train
from everynet.zoo.vision.classifier import ImageClassification
from tests.data.images.test_folder import fill
from tests.runs.test_faults import Faulty
from tests.runs.test_resume import contents, stopped_after

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Photos(ImageClassification[nn.Sequential]):
    """A small network on a folder, its images mirrored and moved at random."""

    mirror: bool = True
    pixels: float = 1
    steps: int = 14
    batch_size: int = 5
    lr: float = 0.01
    eval_every: int = 6
    save_every: int = 3
    goal: str = "accuracy >= 0"

    def model(self, data):
        return nn.Sequential(
            *(nn.Conv2d(data.spec["shape"][0], 4, 3), nn.ReLU(), nn.Dropout(0.2)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
        )


@pytest.fixture
def recipe(tmp_path):
    fill(tmp_path / "photos", count=25, shape=(9, 9, 3))
    return Photos(data=str(tmp_path / "photos"), name="photos")


@pytest.fixture
def large(monkeypatch):
    """A folder counts as large from now on."""
    return lambda: monkeypatch.setattr(decoded, "LARGE", 100)


@pytest.fixture(autouse=True)
def collected():
    """An error that pytest holds on to keeps the loop that raised it, and its thread."""
    if feeders():
        gc.collect()  # a third of a second
    assert not feeders()


def feeders():
    return [thread for thread in threading.enumerate() if "everynet-feed" in thread.name]


def numbers(rows=40, **options):
    """Rows that are their own numbers, said to be in a file."""
    row = torch.arange(rows)
    splits = {part: (row[:, None].float(), row) for part in ("train", "valid", "test")}
    return Data(splits, batch_size=4, **{"mapped": True, **options})


# ---------------------------------------------------------------------------------- a whole run


CASES = [(0, "fp32"), (1, "fp32"), (5, "fp32"), (0, "fp64")]


@pytest.mark.parametrize(("stop", "precision"), CASES)
def test_a_mapped_run_has_the_bits_of_one_in_memory(  # noqa: PLR0917 -- fixtures
    recipe, large, stop, precision, tmp_path, monkeypatch
):
    expected = runs.run(recipe, tmp_path / "memory", device="cpu", precision=precision)
    large()
    if stop:
        folder = stopped_after(stop, recipe, tmp_path / "mapped", monkeypatch)
        result = runs.resume(recipe, folder)
    else:
        result = runs.run(recipe, tmp_path / "mapped", device="cpu", precision=precision)
    assert recipe.dataset().mapped
    assert result.metrics == expected.metrics
    assert contents(result.folder) == contents(expected.folder)
    for picture in expected.pictures:
        assert (result.folder / "pictures" / picture.name).read_bytes() == picture.read_bytes()


def test_a_run_whose_images_changed_is_not_gone_on_with(recipe, large, tmp_path, monkeypatch):
    large()
    folder = stopped_after(3, recipe, tmp_path / "mapped", monkeypatch)
    fill(tmp_path / "photos", count=26, shape=(9, 9, 3))
    with pytest.raises(UserError, match="has changed since the run began"):
        runs.resume(recipe, folder)
    assert checkpoint.steps(folder)[-1] == 3


def test_a_full_disk_is_exit_code_4(recipe, large, tmp_path, monkeypatch, capsys):
    large()
    monkeypatch.setattr(files, "os", Faulty("posix_fallocate", 1, errno.ENOSPC))
    words = [
        "run",
        "cnn-mnist",
        f"data={recipe.data}",
        "size=8",
        "steps=1",
        f"--out={tmp_path / 'out'}",
    ]
    assert main([*words, "--quiet"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device" in line
    assert not (tmp_path / "out").exists()


def test_a_signal_while_images_are_decoded_ends_at_once(recipe, large, tmp_path, monkeypatch):
    large()
    real, seen = folder.noted, []

    def decode(path, content):
        seen.append(path)
        if len(seen) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(path, content)

    monkeypatch.setattr(folder, "noted", decode)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(Stopped, match="stopped while the data was read") as stopped:
        runs.run(recipe, tmp_path / "out", device="cpu")
    assert stopped.value.code == 143
    assert not (tmp_path / "out").exists()
    assert [*cache.pixels().iterdir()] == []


# ----------------------------------------------------------------------------------- the thread


@pytest.mark.parametrize("share", [Share(), Share(1, 2)])
def test_any_step_may_be_asked_for_in_any_order(share):
    data = numbers()
    with data.feed(share) as stored:
        for step in (0, 1, 2, 9, 3, 3, 4, 30, 31, 0):
            for mine, other in zip(stored(step), data.stored(step, share), strict=True):
                assert torch.equal(mine, other)


def test_the_next_steps_are_made_before_they_are_asked_for(monkeypatch):
    data, made, there = numbers(), [], threading.Event()
    real = Data.stored

    def spy(self, step, share):
        made.append((step, threading.current_thread().name))
        if step == feed.AHEAD:
            there.set()
        return real(self, step, share)

    monkeypatch.setattr(Data, "stored", spy)
    with data.feed() as stored:
        stored(0)
        assert there.wait(10)
        assert [step for step, _ in made] == [0, 1, 2]
        stored(1)
        stored(2)
        stored(3)
    assert [step for step, _ in made][:4] == [0, 1, 2, 3], "each is made once"
    assert {name.rpartition("_")[0] for _, name in made} == {"everynet-feed"}


def test_data_in_memory_has_no_thread():
    data = numbers(mapped=False)
    before = threading.active_count()
    with data.feed() as stored:
        stored(0)
        assert threading.active_count() == before
    next(data.valid)
    assert threading.active_count() == before


def test_the_thread_ends_with_the_training_and_with_a_look(recipe, large):
    large()
    data = recipe.dataset()
    state = begin(recipe, data)
    for record in train(recipe, state, data):
        assert len(feeders()) == 1
        if record.step == 3:
            break
    assert not feeders(), "a loop that was left"
    for _ in train(recipe, state, data):
        pass
    assert not feeders(), "a loop that ended"
    next(data.valid)
    assert not feeders(), "a first batch that was looked at"
    evaluate(recipe, state.model, data.valid)
    assert not feeders()


@pytest.mark.parametrize("at", [0, 4])
def test_what_goes_wrong_in_the_thread_is_raised_where_it_is_asked_for(at, recipe, monkeypatch):
    real = Data.stored

    def failing(self, step, share):
        if step == at:
            raise UserError("the rows cannot be read: Input/output error")
        return real(self, step, share)

    monkeypatch.setattr(Data, "stored", failing)
    data = replace(recipe.dataset(), mapped=True)
    state = begin(recipe, data)
    with pytest.raises(UserError, match=r"\Athe rows cannot be read: Input/output error\Z"):
        [*train(recipe, state, data)]
    assert state.step == at
    assert not feeders()


def test_what_goes_wrong_in_an_evaluation_is_raised_too(recipe):
    def broken():
        yield (torch.zeros(1),)
        raise UserError("gone")

    batches = feed.ahead(broken(), None)
    next(batches)
    with pytest.raises(UserError, match="gone"):
        next(batches)
    assert not feeders()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, StopIteration])
def test_whatever_ends_the_thread_is_raised_once_and_the_step_can_be_asked_for_again(error):
    failing = [True]

    def stored(step):
        if step == 2 and failing.pop():
            raise error
        return (torch.tensor([step]),)

    with feed.feeding(stored, None) as fed:
        assert [int(fed(step)[0]) for step in (0, 1)] == [0, 1]
        with pytest.raises(error):
            fed(2)
        failing.append(False)
        assert [int(fed(step)[0]) for step in (2, 3)] == [2, 3]
    assert not feeders()


def test_the_main_thread_may_end_while_a_batch_is_being_made():
    """It waits for that one batch and for none of those behind it."""
    begun, go_on, made = threading.Event(), threading.Event(), []

    def stored(step):
        made.append(step)
        if step == 1:
            begun.set()
            assert go_on.wait(60)
        return (torch.tensor([step]),)

    def leave():
        with feed.feeding(stored, None) as fed:
            fed(0)
            assert begun.wait(60)
            threading.Timer(0.05, go_on.set).start()
            raise Stopped("stopped", signal.SIGTERM)

    with pytest.raises(Stopped):
        leave()
    assert made == [0, 1]
    assert not feeders()


def test_evaluation_has_every_row_once_and_gives_nothing_of_the_file_away():
    data = numbers(eval_batch_size=7)
    batches = [*data.valid]
    assert torch.equal(torch.cat([y for _, y in batches]), torch.arange(40))
    batches[0][0].zero_()
    assert data.splits["valid"][0][6, 0] == 6
    assert [*numbers(rows=4).batches("nothing")] == []


def test_holes_in_memory_are_given_back_now_and_then(monkeypatch):
    calls = []
    monkeypatch.setattr(feed, "give_back_holes", lambda: calls.append(1))
    monkeypatch.setattr(feed, "HOLES", 100)
    with numbers().feed() as stored:  # 4 rows of 12 bytes a step
        counts = [len(calls) for step in range(6) if stored(step)]
    assert counts == [0, 0, 1, 1, 1, 2]


def test_holes_are_given_back_where_the_allocator_can():
    block = [torch.zeros(2**20) for _ in range(50)]
    small = block[::2]
    del block
    memory.give_back_holes()
    assert all(not tensor.any() for tensor in small)


# ----------------------------------------------------------------------------------- the device


def test_what_is_mapped_stays_where_it_is():
    data = numbers()
    meta = data.to(torch.device("meta"), torch.float64)
    assert {t.device for split in meta.splits.values() for t in split} == {CPU}
    assert meta.splits["train"][0].dtype == torch.float64
    assert {t.device.type for t in (*meta.train(0), *next(meta.valid), *meta.whole)} == {"meta"}
    assert {t.device.type for t in meta.some("valid", torch.tensor([1, 2]))} == {"meta"}
    with meta.feed() as stored:
        assert {t.device.type for t in stored(0)} == {"meta"}
    plain = numbers(mapped=False).to(torch.device("meta"))
    assert plain.splits["train"][0].device.type == "meta"
    assert not plain.mapped


def test_a_set_that_fills_a_gpu_stays_outside(monkeypatch):
    data = numbers(mapped=False)
    size = 3 * 40 * (4 + 8)
    for there, mapped in ((2 * size, False), (2 * size - 1, True)):
        monkeypatch.setattr(types, "_memory", lambda _, there=there: there)
        assert data.to(torch.device("meta")).mapped is mapped


def test_some_rows_are_those_of_the_whole(recipe):
    data = recipe.dataset()
    rows = torch.tensor([3, 0, 2])
    x, y = data.some("train", rows)
    assert torch.equal(x, data.whole[0][rows])
    assert torch.equal(y, data.whole[1][rows])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gets_the_same_rows(recipe, large):
    large()
    setup = choose("cuda")
    data = recipe.dataset()
    moved = data.to(setup.device)
    with moved.feed() as stored:
        for step in range(40):
            for mine, other in zip(stored(step), data.stored(step), strict=True):
                assert mine.device.type == "cuda"
                assert torch.equal(mine.cpu(), other)
    for mine, other in zip(moved.valid, data.valid, strict=True):
        torch.testing.assert_close(mine[0].cpu(), other[0])
