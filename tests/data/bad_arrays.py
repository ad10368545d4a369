"""Arrays in npy and npz files that must be refused."""

import io
import struct
import warnings
import zipfile
import zlib

import numpy as np

from everynet.data.split import by_hash, rows

from .bad_images import noise, save
from .mutants import Mutant


def _npy(array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def _npy_saying(header, body=bytes(64)):
    """An npy file whose header says whatever is wanted."""
    text = header.encode() + b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + body


def _header(descr="'<f8'", order="False", shape="(4, 2)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def _bad_npys(random):
    good = _npy(random.normal(size=(40, 3)))
    cases = [
        ("empty", b""),
        ("text", b"height,width\n1,2\n"),
        ("png", save(noise(random, 8, 8), "PNG")),
    ]
    for cut in random.choice(np.arange(1, len(good)), 10, replace=False):
        cases.append((f"cut at {cut}", good[:cut]))
    for position in range(6):
        flipped = bytearray(good)
        flipped[position] ^= 1 << int(random.integers(8))
        cases.append((f"signature flipped at {position}", bytes(flipped)))
    lost = np.array(random.normal(size=(40, 3)))
    lost[random.integers(40), random.integers(3)] = np.nan
    endless = np.array(random.normal(size=(40, 3)))
    endless[random.integers(40), random.integers(3)] = -np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy does not like to write a wide header
        wide = _npy(np.zeros(4, dtype=[(f"field{i}", "<f8") for i in range(900)]))
    cases += [
        ("longer than it says", good + b"\0"),
        ("version 9", good[:6] + b"\x09\0" + good[8:]),
        ("header longer than the file", good[:8] + b"\xff\xff" + good[10:]),
        ("NaN", _npy(lost)),
        ("infinity", _npy(endless)),
        ("objects", _npy(np.array([{"a": 1}, [2], 3], dtype=object))),
        ("fields", _npy(np.zeros(4, dtype=[("a", "<f8"), ("b", "<i4")]))),
        ("many fields", wide),
        ("complex", _npy(np.zeros((4, 2), dtype=complex))),
        ("dates", _npy(np.zeros((4, 2), dtype="datetime64[s]"))),
        ("bytes", _npy(np.zeros((4, 2), dtype="S3"))),
        ("a terabyte", _npy_saying(_header(shape="(1000000, 125000)"))),
        ("2^200 rows", _npy_saying(_header(shape=f"({2**200}, 2)"))),
        ("a negative shape", _npy_saying(_header(shape="(-4, -2)"))),
        ("a shape of words", _npy_saying(_header(shape="('a', 2)"))),
        ("no shape", _npy_saying("{'descr': '<f8', 'fortran_order': False}")),
        ("unknown type", _npy_saying(_header(descr="'<q77'"))),
        ("empty type", _npy_saying(_header(descr="'<U0'"))),
        ("code as header", _npy_saying("__import__('os').getcwd()")),
        ("an old header", _npy_saying(_header(shape="(4L, 2L)"))),
    ]
    return cases


def npys(folder, random):
    for number, (name, content) in enumerate(_bad_npys(random)):
        path = folder / f"{number:03}" / "bad.npy"
        path.parent.mkdir()
        path.write_bytes(content)
        yield Mutant(f"npy {name}", str(path), {"target": "0"}, ("bad.npy",), "table")
    shapes = ((), (5,), (5, 1), (2, 3, 4), (0, 3))
    for number, shape in enumerate(shapes):
        path = folder / f"shape{number}.npy"
        np.save(path, np.zeros(shape))
        yield Mutant(f"npy of shape {shape}", str(path), {"target": "0"}, (path.name,), "table")
    path = folder / "good.npy"
    np.save(path, random.normal(size=(40, 3)))
    for target in ("", "3", "-1", "label", "1.5"):
        words = ("target", "good.npy", "0 to 2")
        yield Mutant(f"npy target={target}", str(path), {"target": target}, words, "table")


def _npz(**arrays) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _zip(members, compression=zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two members of one name are meant
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def _flipped_member(content, random):
    """One bit of a member is another, such that it unpacks to other bytes or not at all."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        member = archive.infolist()[int(random.integers(len(archive.infolist())))]
    name, extra = struct.unpack_from("<HH", content, member.header_offset + 26)
    start = member.header_offset + 30 + name + extra
    stop = start + member.compress_size
    while True:
        flipped = bytearray(content)
        flipped[int(random.integers(start, stop))] ^= 1 << int(random.integers(8))
        if _inflated(flipped[start:stop], member) != _inflated(content[start:stop], member):
            return bytes(flipped)


def _inflated(packed, member):
    if member.compress_type == zipfile.ZIP_STORED:
        return bytes(packed)
    try:
        return zlib.decompressobj(-15).decompress(packed)
    except zlib.error:
        return None


def npzs(folder, random):
    x, y = random.normal(size=(40, 3)), np.arange(40) % 2
    plain = _npz(x=x, y=y)
    stream = io.BytesIO()
    np.savez_compressed(stream, x=np.round(x, 1), y=y)
    packed = stream.getvalue()
    cases = [
        ("empty", b""),
        ("text", b"x,y\n1,2\n"),
        ("noise", random.bytes(600)),
        ("npy renamed npz", _npy(x)),
        ("no members", _zip([])),
        ("the same twice", _zip([("x.npy", _npy(x)), ("y.npy", _npy(y)), ("x.npy", _npy(x))])),
        ("a member of text", _zip([("x.npy", b"hello"), ("y.npy", _npy(y))])),
        ("bomb", _zip([("x.npy", _npy(np.zeros(9_000_000)))], zipfile.ZIP_DEFLATED)),
    ]
    for content, name in ((plain, "plain"), (packed, "packed")):
        for cut in random.choice(np.arange(1, len(content) - 22), 8, replace=False):
            cases.append((f"{name} cut at {cut}", content[:cut]))
        cases += [(f"{name} flipped", _flipped_member(content, random)) for _ in range(12)]
    for name, content in _bad_npys(random)[19:]:
        cases.append((f"holds {name}", _zip([("x.npy", content), ("y.npy", _npy(y))])))
    for number, (name, content) in enumerate(cases):
        path = folder / f"{number:03}" / "bad.npz"
        path.parent.mkdir()
        path.write_bytes(content)
        words = ("bad.npz", "would unpack") if name == "bomb" else ("bad.npz",)
        yield Mutant(f"npz {name}", str(path), {}, words, "table")


def labels(folder, random):
    """Arrays that can be read and make no sense."""
    x, y = random.normal(size=(40, 3)), np.arange(40) % 2
    pixels = random.integers(0, 256, (40, 8, 8), dtype=np.uint8)

    def but(array, value):
        """The array with one entry of the training part replaced."""
        changed = array.copy()
        row = next(row for row, part in enumerate(by_hash(rows(40))) if part == "train")
        changed[row] = value
        return changed

    cases = (
        ("no y", {"x": x}, "x and y"),
        ("no x", {"y": y}, "x and y"),
        ("other names", {"a": x, "b": y}, "a, b"),
        ("one more", {"x": x, "y": y, "z": y}, "x, y, z"),
        ("fewer labels", {"x": x, "y": y[:-1]}, "y of train", "39"),
        ("2-D labels", {"x": x, "y": y[:, None]}, "y of train", "40, 1"),
        ("one-hot labels", {"x": x, "y": np.eye(2)[y]}, "y of train", "40, 2"),
        ("0-D", {"x": np.float64(1), "y": np.int64(1)}, "y of train"),
        ("label -1", {"x": x, "y": but(y, -1)}, "label -1", "y of train"),
        ("label 10^9", {"x": x, "y": but(y, 10**9)}, "label 1000000000", "range"),
        ("label 2^63", {"x": x, "y": but(y.astype(np.uint64), 2**64 - 1)}, "label", "range"),
        ("a class left out", {"x": x, "y": y * 2}, "class 1", "no training sample"),
        ("one class", {"x": x, "y": y * 0}, "class"),
        ("NaN in y", {"x": x, "y": but(x[:, 0], np.nan)}, "y", "finite"),
        ("NaN in x", {"x": but(x, np.nan), "y": y}, "x", "finite"),
        ("infinity in images", {"x": but(pixels / 255, np.inf), "y": y}, "x", "finite"),
        ("words in x", {"x": np.array([["a", "b"]] * 40), "y": y}, "x of train", "words"),
        ("5-D", {"x": np.zeros((40, 1, 2, 2, 2)), "y": y}, "x of train", "4-D"),
        ("1-D", {"x": x[:, 0], "y": y}, "x of train", "2-D"),
        ("no features", {"x": x[:, :0], "y": y}, "x of train"),
        ("no rows", {"x": x[:0], "y": y[:0]}, "train"),
        ("2 channels", {"x": np.zeros((40, 8, 8, 2)), "y": y}, "channels"),
        ("channels on both sides", {"x": np.zeros((40, 3, 8, 3)), "y": y}, "channels"),
        ("x_train alone", {"x_train": x}, "x_train and y_train"),
        ("no y_test", {"x_train": x, "y_train": y, "x_test": x}, "x_test and y_test"),
        ("test alone", {"x_test": x, "y_test": y}, "x_train"),
        (
            "two valids",
            {"x_train": x, "y_train": y, "x_val": x, "y_val": y, "x_valid": x, "y_valid": y},
            "valid",
        ),
        (
            "test of another width",
            {"x_train": x, "y_train": y, "x_test": x[:, :2], "y_test": y},
            "x of test",
            "train",
        ),
        (
            "test of another class",
            {"x_train": x, "y_train": y, "x_test": x, "y_test": y + 1},
            "label 2",
            "y of test",
        ),
        (
            "test of another kind",
            {"x_train": x, "y_train": y, "x_test": x, "y_test": y / 2},
            "one kind",
        ),
        ("empty test", {"x_train": x, "y_train": y, "x_test": x[:0], "y_test": y[:0]}, "test"),
        ("fewer names than classes", {"x": x, "y": y, "classes": np.array(["a"])}, "label 1"),
        (
            "more names than classes",
            {"x": x, "y": y, "classes": np.array(["a", "b", "c"])},
            "class c",
        ),
        ("names twice", {"x": x, "y": y, "classes": np.array(["a", "a"])}, "classes"),
        (
            "names for real numbers",
            {"x": x, "y": x[:, 0], "classes": np.array(["a", "b"])},
            "classes",
        ),
    )
    for number, (name, arrays, *words) in enumerate(cases):
        path = folder / f"{number:03}" / "bad.npz"
        path.parent.mkdir()
        path.write_bytes(_npz(**arrays))
        yield Mutant(f"arrays {name}", str(path), {}, ("bad.npz", *words), "table")
    path = folder / "good.npz"
    path.write_bytes(_npz(x=x, y=y))
    yield Mutant(
        "arrays batch too large", str(path), {"batch_size": 41}, ("batch_size", "41"), "table"
    )
    yield Mutant("arrays with target", str(path), {"target": "y"}, ("target", "good.npz"), "table")


MAKERS = (npys, npzs, labels)
