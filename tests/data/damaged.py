"""Damaged files of the real sets, made by a seeded generator that needs no real data.

`cases(folder)` makes one small folder a case. With EVERYNET_DATA set to `case.folder`, reading the
set `case.name` must end in one line that holds every one of `case.words`, and nothing may be
fetched in place of the damaged file.
"""

import gzip
import io
import os
import random
import struct
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

IDX = {
    "train-images-idx3-ubyte": (60_000, 28, 28),
    "train-labels-idx1-ubyte": (60_000,),
    "t10k-images-idx3-ubyte": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte": (10_000,),
}
LABELS = "t10k-labels-idx1-ubyte"
NPZ = "cifar10_subset_10k_2k.npz"
TAR = "cifar-10-binary.tar.gz"
BATCH = "cifar-10-batches-bin/data_batch_2.bin"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(60)
PAGE = b"<!DOCTYPE html>\n<html><title>404\nnot found</title></html>\n"


@dataclass(frozen=True)
class Case:
    """One damaged file."""

    title: str
    folder: Path
    """What EVERYNET_DATA is to name."""
    name: str
    """The set that is to be read."""
    words: tuple[str, ...]
    """What the message must hold."""


def cases(root, seed=0):
    """Every case, each in a folder of its own below `root`."""
    root = Path(root)
    for number, (title, name, file, content, words) in enumerate(_all(random.Random(seed))):
        folder = root / f"{number:03}"
        path = folder / ("cifar10" if name.startswith("cifar10") else name) / file
        path.parent.mkdir(parents=True)
        _put(path, content)
        yield Case(f"{name}: {title}", folder, name, (path.name, *words))


def _put(path, content):
    if content == "folder":
        path.mkdir()
    elif content == "pipe":
        os.mkfifo(path)
    elif content == "link":
        path.symlink_to(path.parent / "nowhere")
    elif isinstance(content, int):  # so many zeros, without writing them
        with path.open("wb") as stream:
            stream.truncate(content)
    else:
        path.write_bytes(content)


def _all(rng):
    for name in ("mnist", "fashion-mnist"):
        yield from ((title, name, *rest) for title, *rest in _idx(rng))
        yield from ((title, name, *rest) for title, *rest in _gz(rng))
    yield from ((title, "cifar10-small", NPZ, *rest) for title, *rest in _npz(rng))
    yield from ((title, "cifar10", *rest) for title, *rest in _batches(rng))
    yield from ((title, "cifar10", TAR, *rest) for title, *rest in _tar(rng))
    yield "cut, for the small set", "cifar10-small", TAR, _tarred({"a": b"b"})[:-9], ("damaged",)


def _header(*sizes, zeros=0, kind=8, rank=None):
    rank = len(sizes) if rank is None else rank
    return struct.pack(f">HBB{len(sizes)}I", zeros, kind, rank, *sizes)


def _noise(rng, count):
    return rng.randbytes(count)


def _labels(rng):
    return _header(10_000) + bytes(rng.randrange(10) for _ in range(10_000))


def _idx(rng):
    whole = _labels(rng)
    for file, sizes in IDX.items():
        size = 4 + 4 * len(sizes) + int(np.prod(sizes))
        yield "empty", file, b"", ("damaged", "cut short: 0 of")
        yield "cut in the header", file, _header(*sizes)[: rng.randrange(1, 8)], ("cut short",)
        huge = _header(*[2**32 - 1] * len(sizes)) + _noise(rng, rng.randrange(500))
        yield "huge dimensions", file, huge, ("damaged", "cut short")
        yield "nothing but zeros", file, size, ("damaged", "other bytes", "SHA-256")
        yield "one byte too many", file, size + 1, ("damaged", f"more than the {size:,} bytes")
        yield "one byte too few", file, size - 1, ("damaged", f"{size - 1:,} of the {size:,}")
    yield "other labels", LABELS, whole, ("damaged", "other bytes")
    yield "huge dimensions, right length", LABELS, _header(2**32 - 1) + whole[8:], ("other bytes",)
    yield "another type", LABELS, _header(10_000, kind=13) + whole[8:], ("other bytes",)
    yield "no zeros in front", LABELS, _header(10_000, zeros=7) + whole[8:], ("other bytes",)
    yield "cut", LABELS, whole[: rng.randrange(8, 10_000)], ("damaged", "cut short")
    yield "a page instead", LABELS, PAGE, ("damaged", "cut short")
    yield "a picture instead", LABELS, PNG, ("damaged", "cut short")
    yield "a folder", LABELS, "folder", ("damaged", "not an ordinary file")
    yield "a pipe", LABELS, "pipe", ("damaged", "not an ordinary file")
    yield "a link to nothing", LABELS, "link", ("cannot be read", "No such file")
    yield "another spelling", "t10k-labels.idx1-ubyte", whole, ("damaged", "other bytes")


def _gz(rng):
    file = LABELS + ".gz"
    packed = gzip.compress(_labels(rng), mtime=0)
    middle = rng.randrange(20, len(packed) - 20)
    flipped = (
        packed[:middle] + bytes([packed[middle] ^ 1 << rng.randrange(8)]) + packed[middle + 1 :]
    )
    yield "empty gz", file, b"", ("damaged", "cut short")
    yield "no gz", file, PAGE, ("damaged", "cannot be unpacked")
    yield "a picture as gz", file, PNG, ("damaged", "cannot be unpacked")
    yield "cut gz", file, packed[:middle], ("damaged", "cannot be unpacked")
    yield "cut gz header", file, packed[: rng.randrange(2, 10)], ("damaged",)
    yield "flipped bit in gz", file, flipped, ("damaged",)
    yield "wrong sum in gz", file, packed[:-8] + bytes(8), ("damaged", "cannot be unpacked")
    yield "rubbish after gz", file, packed + _noise(rng, 50), ("damaged",)
    yield "other labels in gz", file, packed, ("damaged", "other bytes")
    yield "a bomb of zeros", file, gzip.compress(bytes(50_000_000), 1), ("damaged", "more than")
    yield "twice packed", file, gzip.compress(packed), ("damaged", "cut short")


def _npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _zipped(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _npz(rng):
    images = np.frombuffer(_noise(rng, 6 * 3072), np.uint8).reshape(6, 32, 32, 3)
    arrays = {"x_train": images, "y_train": np.zeros(6, np.uint8)}
    arrays |= {"x_test": images, "y_test": np.zeros(6, np.uint8)}
    members = {f"{name}.npy": _npy(array) for name, array in arrays.items()}
    whole = _zipped(members)
    middle = rng.randrange(100, len(whole) // 2)
    huge = _npy(images).replace(b"(6, 32, 32, 3), }", b"(10**9, 32, 3), }")
    method = whole.replace(
        b"PK\x01\x02\x14\x03\x14\0\0\0\x08\0", b"PK\x01\x02\x14\x03\x14\0\0\0\x63\0"
    )
    locked = whole.replace(b"PK\x01\x02\x14\x03\x14\0\0\0", b"PK\x01\x02\x14\x03\x14\0\x01\0")
    yield "empty npz", b"", ("damaged", "cannot be unpacked")
    yield "no npz", PAGE, ("damaged", "cannot be unpacked")
    yield "cut npz", whole[:middle], ("damaged", "cannot be unpacked")
    yield "cut at the end", whole[: -rng.randrange(1, 20)], ("damaged",)
    yield (
        "flipped bit",
        whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :],
        ("damaged",),
    )
    yield "noise", _noise(rng, 3000), ("damaged", "cannot be unpacked")
    yield "no member", _zipped({}), ("damaged", "lacks x_test.npy, x_train.npy")
    yield "an array missing", _zipped({n: members[n] for n in list(members)[:1]}), ("damaged",)
    yield "few images", whole, ("damaged", "cut short")
    yield "huge header", _zipped(members | {"x_train.npy": huge}), ("damaged", "cut short")
    yield "objects", _zipped({"x_train.npy": _npy(np.array([{}, 1]))}), ("damaged",)
    yield "a bomb inside", _zipped({"x_train.npy": bytes(60_000_000)}), ("damaged", "more than")
    yield (
        "members that lead outside",
        _zipped({f"../../{n}": d for n, d in members.items()}),
        ("lacks",),
    )
    yield "unknown packing", method, ("damaged",)
    yield "a password", locked, ("damaged", "cannot be unpacked")
    yield "folders for arrays", _zipped({f"{n}/": b"" for n in members}), ("damaged",)
    yield "a folder as npz", "folder", ("damaged", "not an ordinary file")


def _batches(rng):
    record = bytes([3]) + _noise(rng, 3072)
    yield "empty batch", BATCH, b"", ("damaged", "cut short: 0 of the 30,730,000")
    yield "one record", BATCH, record, ("damaged", "cut short: 3,073 of")
    yield "a part of a record", BATCH, record[: rng.randrange(3073)], ("damaged", "cut short")
    yield "zeros", BATCH, 30_730_000, ("damaged", "other bytes")
    yield "a byte too many", BATCH, 30_730_001, ("damaged", "more than the 30,730,000 bytes")
    yield "labels beyond nine", BATCH, (b"\xff" + record[1:]) * 3, ("damaged", "cut short")
    yield "batch at the top", "test_batch.bin", record, ("damaged", "cut short")
    yield "batch as gz", "data_batch_1.bin.gz", gzip.compress(record), ("damaged", "cut short")


def _tarred(members, kind=tarfile.REGTYPE):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(data), "/etc/passwd"
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def _tar(rng):
    record = bytes([3]) + _noise(rng, 3072)
    names = [f"cifar-10-batches-bin/data_batch_{n}.bin" for n in range(1, 6)]
    members = dict.fromkeys([*names, "cifar-10-batches-bin/test_batch.bin"], record)
    whole = _tarred(members)
    middle = rng.randrange(100, len(whole) // 2)
    yield "empty tar", b"", ("damaged", "cannot be unpacked")
    yield "no tar", PAGE, ("damaged", "cannot be unpacked")
    yield "gz but no tar", gzip.compress(_noise(rng, 2000)), ("damaged", "cannot be unpacked")
    yield "cut tar", whole[:middle], ("damaged",)
    yield (
        "flipped",
        whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :],
        ("damaged",),
    )
    yield "short batches", whole, ("damaged", "cut short: 3,073 of")
    yield "no batch", _tarred({"readme.html": PAGE}), ("damaged", "lacks data_batch_1.bin")
    yield "links", _tarred(dict.fromkeys(members, b""), tarfile.SYMTYPE), ("damaged", "lacks")
    yield "outside", _tarred({f"/etc/../{n}": record for n in members}), ("damaged", "lacks")
    bomb = _tarred({names[0]: bytes(31_000_000)})
    yield "a batch too long", bomb, ("damaged", "more than the 30,730,000 bytes")
