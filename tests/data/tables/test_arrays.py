"""npy and npz files: what each name and shape means."""

import numpy as np
import pytest
import torch

from everynet.data.split import PARTS
from everynet.data.tables import arrays, npz
from tests.data.either import load

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(60, 4)), np.arange(60) % 3
PIXELS = RANDOM.integers(0, 256, (60, 5, 6), dtype=np.uint8)


def save(tmp_path, **named):
    np.savez(tmp_path / "a.npz", **named)
    return tmp_path / "a.npz"


def whole(raw):
    order = torch.cat([raw.rows[part] for part in PARTS]).argsort()
    return tuple(torch.cat([raw.parts[part][i] for part in PARTS])[order] for i in (0, 1))


@pytest.mark.parametrize(
    "array",
    [
        np.float32(X),
        np.asfortranarray(X),
        X.astype(">f8"),
        np.arange(12, dtype=np.uint16).reshape(3, 4),
        np.array(["a", "längst"]),
        np.array([True, False]),
        np.float64(3.5),
    ],
)
def test_arrays_are_read_as_numpy_reads_them(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    found = npz.read_npy(tmp_path / "a.npy")
    assert np.array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")
    np.savez_compressed(tmp_path / "a.npz", one=array, two=array)
    assert all(np.array_equal(found, array) for found in npz.read_npz(tmp_path / "a.npz").values())


def test_a_table_with_classes(tmp_path):
    raw = arrays.read(save(tmp_path, x=X, y=Y))
    x, y = whole(raw)
    assert np.array_equal(x.numpy(), X)
    assert np.array_equal(y.numpy(), Y)
    assert raw.classes == ("0", "1", "2")
    assert raw.features == ("x0", "x1", "x2", "x3")


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, np.uint64])
def test_labels_of_every_whole_type(tmp_path, kind):
    assert whole(arrays.read(save(tmp_path, x=X, y=Y.astype(kind))))[1].tolist() == Y.tolist()


def test_truth_values_words_and_names(tmp_path):
    assert arrays.read(save(tmp_path, x=X, y=Y > 0)).classes == ("0", "1")
    words = np.array(["oak", "ash", "yew"])
    raw = arrays.read(save(tmp_path, x=X, y=words[Y]))
    assert raw.classes == ("ash", "oak", "yew")
    assert whole(raw)[1][:3].tolist() == [1, 0, 2]
    assert arrays.read(save(tmp_path, x=X, y=Y, classes=words)).classes == ("oak", "ash", "yew")


def test_real_numbers_are_a_real_target(tmp_path):
    raw = arrays.read(save(tmp_path, x=X, y=X[:, 0]))
    assert raw.task == "regression"
    assert whole(raw)[1].dtype == torch.float64


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (PIXELS, (1, 5, 6)),
        (PIXELS[:, None], (1, 5, 6)),
        (PIXELS[..., None], (1, 5, 6)),
        (np.stack([PIXELS] * 3, 1), (3, 5, 6)),
        (np.stack([PIXELS] * 3, -1), (3, 5, 6)),
        (PIXELS.astype(np.int64), (1, 5, 6)),
    ],
)
def test_images_with_channels_on_either_side(tmp_path, images, shape):
    raw = arrays.read(save(tmp_path, x=images, y=Y))
    x = whole(raw)[0]
    assert x.dtype == torch.uint8
    assert x.shape[1:] == shape
    assert all(np.array_equal(x[:, channel].numpy(), PIXELS) for channel in range(shape[0]))
    assert raw.peak == 255


def test_real_images_keep_their_values(tmp_path):
    data = load(save(tmp_path, x=PIXELS / 255 - 0.5, y=Y), batch_size=4)
    assert data.spec["peak"] == 1
    assert data.spec["mean"][0] == pytest.approx(PIXELS.mean() / 255 - 0.5, abs=0.02)
    assert data.splits["train"][0].dtype == torch.float32
    raw = arrays.read(save(tmp_path, x=PIXELS.astype(np.int64) * 300, y=Y))
    assert whole(raw)[0].max() == PIXELS.max() * 300.0


@pytest.mark.parametrize("ending", ["valid", "val", "validation"])
def test_the_users_own_parts(tmp_path, ending):
    path = save(
        tmp_path,
        **{"x_train": X, "y_train": Y, "x_test": X[:9], "y_test": Y[:9]},
        **{f"x_{ending}": X[:6], f"y_{ending}": Y[:6]},
    )
    data = load(path, batch_size=4)
    assert [data.rows(part) for part in PARTS] == [60, 6, 9]
    assert data.spec["split"] == "train, valid and test are arrays of their own"


def test_a_part_that_is_not_there_is_taken_from_train(tmp_path):
    data = load(save(tmp_path, x_train=X, y_train=Y, x_test=X[:9], y_test=Y[:9]), batch_size=4)
    assert data.rows("test") == 9
    assert data.rows("train") + data.rows("valid") == 60
    assert "a tenth of the rest is valid" in data.spec["split"]
    assert "test" not in data.spec["split"]


def test_an_npy_is_a_table_with_a_target_column(tmp_path):
    np.save(tmp_path / "a.npy", np.column_stack([X, Y]).round().astype(np.int64))
    raw = arrays.read(tmp_path / "a.npy", "4")
    assert raw.classes == ("0", "1", "2")
    assert whole(raw)[1].tolist() == Y.tolist()
    np.save(tmp_path / "a.npy", X)
    raw = arrays.read(tmp_path / "a.npy", "1")
    assert raw.task == "regression"
    assert np.array_equal(whole(raw)[0].numpy(), X[:, [0, 2, 3]])
    assert np.array_equal(whole(raw)[1].numpy(), X[:, 1])


def test_no_python_object_is_made_from_a_file(tmp_path):
    """A pickle that would write a file, were it ever read."""
    import pickle

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    array = np.empty(1, dtype=object)
    array[0] = Trap()
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Trap()))
    for name in ("a.npy", "b.npy"):
        with pytest.raises(ValueError, match=name):
            load(tmp_path / name, batch_size=1, target="0")
    assert not (tmp_path / "sprung").exists()
