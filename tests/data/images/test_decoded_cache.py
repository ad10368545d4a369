"""Large folders are decoded once: what is kept is trusted only while it is beyond doubt."""

import errno
import hashlib
import io
import json
import os
import re
import threading
import time
from pathlib import Path

import filelock
import numpy as np
import pytest
import torch
from PIL import Image

from everynet.data import kinds
from everynet.data.images import decoded_cache as decoded
from everynet.data.images import file_cache as seen
from everynet.data.images import folder
from everynet.data.images import standardize as images
from everynet.data.images.file_cache import unseal
from everynet.data.kinds.image import KIND as IMAGES
from everynet.data.loading import load, samples
from everynet.runs.progress import Progress
from everynet.system import cache, files
from everynet.system.errors import CannotWrite, UserError
from everynet.system.status import telling
from tests.runs.test_faults import Faulty

from .test_folder import fill, pixels

LONG_AGO = 1_700_000_000


@pytest.fixture(autouse=True)
def large(tmp_path, monkeypatch):
    """Every folder counts as large, in a cache of its own."""
    monkeypatch.setattr(decoded, "LARGE", 100)
    monkeypatch.setattr(seen, "SETTLED", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def opened(monkeypatch):
    """The image files that were opened, in order."""
    names, real = [], Path.open

    def spy(path, *arguments, **options):
        if path.suffix in (".png", ".jpg"):
            names.append(path.name)
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", spy)
    return names


class Screen(io.StringIO):
    """What a person sees."""

    def __init__(self, terminal=False):
        super().__init__()
        self.isatty = lambda: terminal


def telling_on(stream, shown=True):
    progress = Progress(1, shown=shown)
    progress.stream = stream
    return telling(progress)


def photos(tmp_path, **options):
    fill(tmp_path / "photos", **options)
    return tmp_path / "photos"


def two_folders(tmp_path, first, second, made):
    """Twenty images and what belongs to each."""
    for name in (first, second):
        (tmp_path / "two" / name).mkdir(parents=True)
    for number in range(20):
        Image.fromarray(pixels(number, 6, 6)).save(tmp_path / "two" / first / f"{number}.png")
        Image.fromarray(made(number)).save(tmp_path / "two" / second / f"{number}.png")
    return tmp_path / "two"


def boxes(tmp_path):
    place = tmp_path / "boxes"
    place.mkdir()
    lines = ["image,class,left,top,right,bottom"]
    for number in range(20):
        Image.fromarray(pixels(number, 6, 6)).save(place / f"{number}.png")
        lines.append(f"{number}.png,{'ab'[number % 2]},1,1,4,{number % 3 + 2}")
    (place / "boxes.csv").write_text("\n".join(lines))
    return place


FOLDERS = {
    "image": photos,
    "mask": lambda place: two_folders(
        place, "images", "masks", lambda n: np.where(pixels([n, 1], 6, 6) > 99, 255, 7).astype("u1")
    ),
    "map": lambda place: two_folders(place, "inputs", "targets", lambda n: pixels([n, 2], 6, 6, 3)),
    "boxes": boxes,
}


def kept():
    """The files of the cache by their endings."""
    return {path.suffix: path for path in cache.pixels().iterdir() if "files-" not in path.name}


def same(first, second):
    assert first.digest == second.digest
    assert first.classes == second.classes
    for part, tensors in first.parts.items():
        for mine, other in zip(tensors, second.parts[part], strict=True):
            assert torch.equal(mine, other)


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("size", [0, 9])
def test_a_large_folder_gives_what_a_small_one_gives(kind, size, tmp_path, monkeypatch, opened):
    place = FOLDERS[kind](tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(decoded, "LARGE", 2**30)
        small = samples(place, kind=kind, size=size)
        small_data = load(place, kind=kind, size=size, batch_size=4)
    assert not small.mapped
    assert not cache.pixels().exists(), "a small folder leaves nothing in the cache"
    first = samples(place, kind=kind, size=size)
    assert opened
    opened.clear()
    with monkeypatch.context() as patch:
        for module in (images, kinds.named("map").__module__, folder):
            name = module if isinstance(module, str) else module.__name__
            patch.setattr(f"{name}.counts", None)  # nor does it look at the pixels
        again = samples(place, kind=kind, size=size)
        data = load(place, kind=kind, size=size, batch_size=4)
    assert not opened, "a second start opens no image"
    for each in (first, again):
        assert each.mapped
        same(each, small)
    assert data.mapped
    assert data.splits["train"][0].dtype == torch.uint8, "no whole set of floats"
    assert not small_data.mapped
    assert data.spec == small_data.spec
    assert data.eval_batch_size == small_data.eval_batch_size
    for step in range(5):
        for mine, other in zip(data.train(step), small_data.train(step), strict=True):
            assert torch.equal(mine, other)
    for part in ("valid", "test"):
        for batch, other in zip(data.batches(part), small_data.batches(part), strict=True):
            assert all(map(torch.equal, batch, other))


def test_a_file_that_changes_is_noticed_whatever_its_time(tmp_path, opened):
    place = photos(tmp_path)
    path = place / "cat" / "3.png"
    before = IMAGES.find(place)
    old, mark = path.read_bytes(), path.stat()
    other = tmp_path / "other.png"
    for number in range(1000):  # one that is just as long
        Image.fromarray(pixels([7, number], 6, 6)).save(other)
        if other.stat().st_size == len(old):
            break
    opened.clear()
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(mark.st_atime_ns, mark.st_mtime_ns))
    after = IMAGES.find(place)
    assert path.stat().st_size == mark.st_size
    assert "3.png" in opened
    assert after.digest != before.digest
    assert not all(torch.equal(after.parts[p][0], before.parts[p][0]) for p in before.parts)


def test_a_file_that_was_touched_is_read_but_not_decoded_again(tmp_path, opened, monkeypatch):
    place = photos(tmp_path)
    before = IMAGES.find(place)
    os.utime(place / "cat" / "3.png", (LONG_AGO, LONG_AGO))
    opened.clear()
    monkeypatch.setattr(folder, "noted", None)
    same(IMAGES.find(place), before)
    assert {*opened} == {"3.png"}


def test_a_file_that_may_still_be_written_is_not_remembered(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(seen, "SETTLED", 10**12)
    place = photos(tmp_path)
    before = IMAGES.find(place)
    opened.clear()
    monkeypatch.setattr(folder, "noted", None)
    same(IMAGES.find(place), before)
    assert len({*opened}) == 20


def test_the_same_images_in_other_parts_have_another_mean(tmp_path, monkeypatch):
    place = tmp_path / "photos"
    fill(place / "train", count=5)
    fill(place / "valid", classes=("dog",), count=3)
    fill(place / "test", count=3)
    before = load(place, kind="image", batch_size=4)
    (place / "train" / "dog" / "4.png").rename(place / "valid" / "dog" / "-first.png")
    after = load(place, kind="image", batch_size=4)
    monkeypatch.setattr(decoded, "LARGE", 2**30)
    assert after.spec == load(place, kind="image", batch_size=4).spec != before.spec


def test_another_size_is_other_pixels(tmp_path):
    place = photos(tmp_path)
    small, large = IMAGES.find(place), IMAGES.find(place, size=12)
    assert small.parts["train"][0].shape[2:] == (6, 6)
    assert large.parts["train"][0].shape[2:] == (12, 12)
    assert len([*cache.pixels().glob("*.u8")]) == 2


def test_a_root_may_be_named_in_other_words(tmp_path, opened, monkeypatch):
    place = photos(tmp_path)
    before = IMAGES.find(place)
    opened.clear()
    for there, words in ((tmp_path, "photos"), (place, "."), (place / "cat", "..")):
        monkeypatch.chdir(there)
        same(IMAGES.find(Path(words)), before)
    assert not opened


# --------------------------------------------------------------------------------------- damage


def flipped(at=100):
    def damage(path, _):
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)

    return damage


def flipped_in_secret(path, beside):
    mark = path.stat()
    flipped()(path, beside)
    os.utime(path, ns=(mark.st_atime_ns, mark.st_mtime_ns))


def flipped_beside(_, beside):
    flipped(90)(beside, None)


def nonsense_beside(_, beside):
    beside.write_bytes(b"\xff\x00 no json")


def sealed(value):
    body = json.dumps(value).encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def sealed_beside(change):
    """Whoever can write to the cache can seal what is there."""

    def damage(_, beside):
        beside.write_bytes(sealed(change(unseal(beside))))

    return damage


def a_pipe(path):
    path.unlink()
    os.mkfifo(path)


def endless(path, _):
    path.unlink()
    path.symlink_to("/dev/zero")


DAMAGE = {
    "a pipe": lambda path, _: a_pipe(path),
    "endless": endless,
    "json: a pipe": lambda _, beside: a_pipe(beside),
    "json: a list": sealed_beside(lambda said: [said]),
    "json: no mark": sealed_beside(lambda said: {**said, "mark": 3}),
    "json: an empty mark": sealed_beside(lambda said: {**said, "mark": []}),
    "json: no sum": sealed_beside(lambda said: {k: v for k, v in said.items() if k != "sha256"}),
    "json: no facts": sealed_beside(lambda said: {**said, "facts": None}),
    "a bit": flipped(),
    "a bit, in secret": flipped_in_secret,
    "cut short": lambda path, _: os.truncate(path, 100),
    "longer": lambda path, _: path.write_bytes(path.read_bytes() + b"x"),
    "empty": lambda path, _: path.write_bytes(b""),
    "not there": lambda path, _: path.unlink(),
    "of others": lambda path, _: path.write_bytes(bytes(path.stat().st_size)),
    "a folder": lambda path, _: (path.unlink(), path.mkdir()),
    "json: a bit": flipped_beside,
    "json: cut short": lambda _, beside: os.truncate(beside, 100),
    "json: not there": lambda _, beside: beside.unlink(),
    "json: nonsense": nonsense_beside,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_pixels_are_decoded_again(damage, tmp_path, opened, monkeypatch):
    place = photos(tmp_path)
    before = IMAGES.find(place)
    expected = {part: x.clone() for part, (x, _) in before.parts.items()}
    DAMAGE[damage](kept()[".u8"], kept()[".json"])
    opened.clear()
    if damage == "a folder":
        with pytest.raises(CannotWrite, match=r"cannot write 1,440 bytes to .*Is a directory"):
            IMAGES.find(place)
        return
    again = IMAGES.find(place)
    assert opened
    for part, x in expected.items():
        assert torch.equal(again.parts[part][0], x)
    opened.clear()
    monkeypatch.setattr(folder, "noted", None)
    IMAGES.find(place)
    assert not opened, "what was decoded again is good"


def test_damaged_memory_of_files_means_that_they_are_read(tmp_path, opened):
    place = photos(tmp_path)
    before = IMAGES.find(place)
    (seen,) = cache.pixels().glob("files-*")
    flipped(200)(seen, None)
    opened.clear()
    same(IMAGES.find(place), before)
    assert opened


@pytest.mark.parametrize("odd", [
    [], {"files": []}, {"files": {"cat/0.png": 3}}, {"files": {"cat/0.png": [[]] * 8}},
    ["mark", 0, 0, 0, "x"], ["mark", -1, 2, 3, "a" * 64], ["mark", 4, 5, 1, "no sum"],
])  # fmt: skip
def test_memory_of_files_in_another_form_means_that_they_are_read(odd, tmp_path, opened):
    place = photos(tmp_path)
    before = IMAGES.find(place)
    (seen,) = cache.pixels().glob("files-*")
    if isinstance(odd, list) and odd:
        known = unseal(seen)["files"]
        odd = {"files": {name: [*file[:4], *odd[1:]] for name, file in known.items()}}
    seen.write_bytes(sealed(odd))
    opened.clear()
    same(IMAGES.find(place), before)
    assert opened


def test_pixels_that_were_only_touched_are_looked_through_once(tmp_path, monkeypatch):
    place = photos(tmp_path)
    before = IMAGES.find(place)
    os.utime(kept()[".u8"], (LONG_AGO, LONG_AGO))
    looks, real = [], decoded._sha256
    monkeypatch.setattr(decoded, "_sha256", lambda path: looks.append(path) or real(path))
    monkeypatch.setattr(folder, "noted", None)
    for _ in range(3):
        same(IMAGES.find(place), before)
    assert len(looks) == 1


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    place = photos(tmp_path)
    IMAGES.find(place)
    path, beside = kept()[".u8"], kept()[".json"]
    path.unlink()
    beside.unlink()
    left = path.with_name(f".everynet-0badf00d0badf00d-{path.name}")
    left.write_bytes(b"half")
    IMAGES.find(place)
    assert not left.exists()
    assert path.exists()


# --------------------------------------------------------------------------------------- faults


OPERATIONS = ["posix_fallocate", "pwrite", "fsync", "rename", "write"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_full_disk_ends_in_one_line_and_leaves_nothing(operation, tmp_path, monkeypatch):
    place = photos(tmp_path, count=4)
    monkeypatch.setattr(decoded.FileCache, "keep", lambda _: None)
    for n in range(1, 100):
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", Faulty(operation, n, errno.ENOSPC))
            try:
                IMAGES.find(place)
            except CannotWrite as failure:
                line = str(failure)
            else:
                break
        assert failure_of(line)
        assert [*cache.pixels().iterdir()] == []
    assert n > 1, "it was never called"


def failure_of(line):
    """Whether a line says what is missing and where."""
    return re.search(r"cannot write .*pixels/\w+.*: No space left on device; free some", line)


def test_a_full_disk_says_how_much_was_needed(tmp_path, monkeypatch):
    place = photos(tmp_path)
    monkeypatch.setattr(files, "os", Faulty("posix_fallocate", 1, errno.ENOSPC))
    words = r"cannot write 1,440 bytes to .*pixels.*No space left on device; .*XDG_CACHE_HOME"
    with pytest.raises(CannotWrite, match=words) as failure:
        IMAGES.find(place)
    assert failure.value.code == 4


def test_a_disk_that_cannot_reserve_room_is_written_all_the_same(tmp_path, monkeypatch):
    place = photos(tmp_path)
    monkeypatch.setattr(files, "os", Faulty("posix_fallocate", 1, errno.EOPNOTSUPP))
    assert IMAGES.find(place).mapped
    assert kept()[".u8"].stat().st_size == 40 * 36


@pytest.mark.parametrize("closed", ["a file", "no permission"])
def test_a_closed_cache_means_a_temporary_file(closed, tmp_path, monkeypatch):
    place, stream = photos(tmp_path), Screen()
    monkeypatch.setattr(decoded.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    if closed == "a file":
        monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cat" / "1.png"))
    else:
        monkeypatch.setattr(files, "os", Faulty("mkdir", 1, errno.EACCES))
    with telling_on(stream):
        found = IMAGES.find(place)
    (line,) = [line for line in stream.getvalue().splitlines() if "40 files" not in line]
    assert re.fullmatch(r"cannot keep decoded images in .*pixels: .*; every run decodes them", line)
    assert found.mapped
    assert [*(tmp_path / "temporary").iterdir()] == []
    monkeypatch.setattr(decoded, "LARGE", 2**30)
    same(found, IMAGES.find(place))


def test_no_room_for_the_temporary_file_is_one_line(tmp_path, monkeypatch):
    place = photos(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cat" / "1.png"))
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", Faulty("pwrite", 3, errno.ENOSPC))
        with pytest.raises(CannotWrite, match=r"cannot write 1,440 bytes.*TMPDIR"):
            IMAGES.find(place)
    monkeypatch.setattr(decoded.tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(CannotWrite, match=r"cannot make a temporary folder: .*TMPDIR"):
        IMAGES.find(place)


def test_a_disk_that_takes_a_few_bytes_at_a_time(tmp_path, monkeypatch):
    class Slow:
        def __getattr__(self, name):
            return getattr(os, name)

        def pwrite(self, descriptor, content, at):
            return os.pwrite(descriptor, content[:7], at)

    place = photos(tmp_path)
    monkeypatch.setattr(files, "os", Slow())
    found = IMAGES.find(place)
    monkeypatch.setattr(decoded, "LARGE", 2**30)
    same(found, IMAGES.find(place))


def test_an_image_that_cannot_be_read_leaves_nothing(tmp_path):
    place = photos(tmp_path)
    path = place / "dog" / "5.png"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"5\.png"):
        IMAGES.find(place, strict=True)
    assert [*cache.pixels().iterdir()] == []


def test_a_file_that_changes_between_two_looks_is_refused(tmp_path, monkeypatch):
    place, real = photos(tmp_path), decoded.FileCache.digests

    def digests(seen, paths):
        found = real(seen, paths)
        Image.fromarray(pixels(999, 6, 6)).save(paths[2])
        return found

    monkeypatch.setattr(decoded.FileCache, "digests", digests)
    with pytest.raises(UserError, match=r"png has changed while it was read; try again"):
        IMAGES.find(place)
    assert [*cache.pixels().iterdir()] == []


def test_two_at_once_decode_once(tmp_path, monkeypatch):
    place, real = photos(tmp_path), folder.noted
    seen, both, found = [], threading.Barrier(2), []
    monkeypatch.setattr(
        folder, "noted", lambda *given: seen.append(time.sleep(0.005)) or real(*given)
    )
    screens = [Screen(), Screen()]

    def reads(screen):
        both.wait()
        with telling_on(screen):
            found.append(IMAGES.find(place))

    threads = [threading.Thread(target=reads, args=[screen]) for screen in screens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(*found)
    shown = [screen.getvalue() for screen in screens]
    assert len(seen) == 40
    said = sorted(len(re.findall("another process is decoding .*photos; w", s)) for s in shown)
    assert said == [0, 1]
    assert not [*cache.pixels().glob("*.lock")]


def test_without_locks_both_decode_and_the_last_one_stays(tmp_path, monkeypatch):
    class Lockless:
        def __init__(self, _):
            pass

        def acquire(self, timeout=-1):
            raise NotImplementedError

    monkeypatch.setattr(filelock, "FileLock", Lockless)
    place = photos(tmp_path)
    same(IMAGES.find(place), IMAGES.find(place))


# ------------------------------------------------------------------------------------ what is said


def test_progress_moves_on_a_terminal_and_is_a_line_elsewhere(tmp_path):
    place = photos(tmp_path)
    for stream, pattern in (
        (
            Screen(terminal=True),
            r"(?s)\r1/40 files, .* left: reading .*\r40/40 files, 0 s left: decoding ",
        ),
        (Screen(), r"\Areading \S+photos: 40 files\ndecoding \S+photos: 40 files\n\Z"),
    ):
        for path in [*cache.pixels().glob("*")] if cache.pixels().exists() else []:
            path.unlink()
        with telling_on(stream):
            IMAGES.find(place)
        assert re.search(pattern, stream.getvalue()), stream.getvalue()
        assert stream.getvalue().endswith("\n")


def test_nothing_is_said_where_nothing_is_shown_or_done(tmp_path):
    place = photos(tmp_path)
    for shown in (False, True):
        stream = Screen()
        with telling_on(stream, shown):
            IMAGES.find(place)
        assert stream.getvalue() == ""


def test_levels_are_counted_in_pieces(monkeypatch):
    x = torch.from_numpy(pixels(3, 50, 3, 4, 4))
    whole = images.counts(x)
    for channel in range(3):
        assert torch.equal(whole[channel], torch.bincount(x[:, channel].flatten(), minlength=256))
    monkeypatch.setattr(images, "PIECE", 1)
    assert torch.equal(images.counts(x), whole)


def test_few_large_images_are_evaluated_at_once():
    assert IMAGES.at_once({"shape": [3, 32, 32]}) == 1000
    assert IMAGES.at_once({"shape": [3, 256, 256]}) == 42
    assert IMAGES.at_once({"shape": [3, 30_000, 30_000]}) == 1


def test_every_kind_of_folder_is_tried():
    """A kind that decodes folders of images must be in the list above."""
    here = Path(kinds.__path__[0])
    there = {name for name in kinds.ORDER if "import folder" in (here / f"{name}.py").read_text()}
    assert there - {"labelled", "sound"} <= {*FOLDERS}
