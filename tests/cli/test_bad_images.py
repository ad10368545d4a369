"""Images and weights that do not fit: one line with the way out, exit code 2, nothing lost."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

SMALL = ("widths=4,4", "steps=4", "batch_size=4", "--out", "runs")


def picture(path, *, height=16, width=16, mode="RGB", seed=0):
    """Noise in a colour mode, saved in whatever the name of the file says."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (height, width) if mode in ("L", "I;16", "F") else (height, width, 3)
    levels = np.random.default_rng(seed).integers(0, 256, shape)
    kinds = {"I;16": np.uint16, "F": np.float32}
    image = Image.fromarray(levels.astype(kinds.get(mode, np.uint8)))
    if mode == "RGBA":
        image.putalpha(128)
    elif mode not in ("RGB", *kinds):
        image = image.convert(mode)
    image.save(path)


def photos(classes=("cat", "dog"), count=8):
    for label in classes:
        for number in range(count):
            picture(f"photos/{label}/{number}.png", seed=number)


def scans(count=12):
    for number in range(count):
        picture(f"scans/images/{number}.png", seed=number)
        disc = np.random.default_rng(number).integers(0, 2, (16, 16))
        Path("scans/masks").mkdir(exist_ok=True)
        Image.fromarray((255 * disc).astype(np.uint8)).save(f"scans/masks/{number}.png")


def mixed_sizes():
    photos()
    picture("photos/dog/3.png", height=12, width=20)
    return "data=./photos"


def numbers():
    photos()
    picture("photos/dog/9.tif", mode="F")
    return "data=./photos", "strict=true"


def one_class():
    photos(("cat",))
    return "data=./photos"


def too_few():
    photos(count=3)
    return "data=./photos", "batch_size=128"


def channels(count, **shape):
    def make():
        x = np.zeros((40, 16, 16, count), np.uint8) if not shape else np.zeros(**shape)
        np.savez("photos.npz", x=x, y=np.arange(len(x)) % 2)
        return "data=photos.npz"

    return make


def foreign_weights():
    photos()
    save_file({"layer1.0.conv1.weight": torch.zeros(4, 3, 3, 3)}, "other.safetensors")
    return "data=./photos", "start=other.safetensors"


def pickled_weights():
    photos()
    torch.save({"output.bias": torch.zeros(2)}, "other.pt")
    return "data=./photos", "start=other.pt"


def damaged_weights():
    photos()
    Path("other.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0no json!")
    return "data=./photos", "start=other.safetensors"


BAD = {
    "mixed sizes": (
        mixed_sizes,
        r"photos/dog/3\.png \(20x12\) must be as large as photos/cat/\d\.png \(16x16\); or do "
        r"size=16, which resizes them all",
    ),
    "numbers": (numbers, r"photos/dog/9\.tif has colour mode F; save it as grey or RGB"),
    "one class": (
        one_class,
        r"photos: one class \(cat\) is not enough to learn from; add a subfolder with images of "
        r"another",
    ),
    "fewer than a batch": (
        too_few,
        r"batch_size \(128\) must be between 1 and the \d training samples; try \d",
    ),
    "five channels": (
        channels(5),
        r"photos\.npz: x of train \(shape \(40, 16, 16, 5\)\) must have 1 or 3 channels in its "
        r"second or its last place, and not in both, because .*; save so many",
    ),
    "channels on both sides": (
        channels(3, shape=(40, 3, 16, 3), dtype=np.uint8),
        r"photos\.npz: x of train \(shape \(40, 3, 16, 3\)\) must have 1 or 3 .* not in both, .*",
    ),
    "weights of another network": (
        foreign_weights,
        r"start \(other\.safetensors\) must hold weights that fit this network: none of its 1 "
        r"tensors has the name and shape of one of ours, such as blocks\.0\.conv\.weight; give "
        r"those of this network, trained with the same settings",
    ),
    "weights in a pickle": (
        pickled_weights,
        r"start \(other\.pt\) must be a run folder or a \.safetensors file; "
        r"safetensors\.torch\.save_file makes one of a state_dict",
    ),
    "damaged weights": (
        damaged_weights,
        r"other\.safetensors is no safetensors file, or is damaged: .*",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_learned_from_is_answered_in_one_line(refused, case):
    make, message = BAD[case]
    given = make()
    before = sorted(Path().rglob("*"))
    words = given if isinstance(given, tuple) else (given,)
    named = {word.partition("=")[0] for word in words}
    usual = [word for word in SMALL if word.partition("=")[0] not in named]
    line = refused("run", "cnn-cifar", *words, *usual)
    assert re.fullmatch(message, line), line
    assert sorted(Path().rglob("*")) == before, "nothing is written, nothing lost"


def test_a_mask_of_another_size(refused):
    scans()
    Image.fromarray(np.zeros((12, 16), np.uint8)).save("scans/masks/5.png")
    for size in ((), ("size=16",)):
        line = refused("run", "unet", "data=./scans", "width=2", "depth=2", "batch_size=4", *size)
        assert line == (
            "scans/masks/5.png (16x12) must be as large as scans/images/5.png (16x16), because "
            "they are taken pixel by pixel; save it in that size"
        )


def test_the_ways_out_lead_out_and_a_bad_question_leaves_the_run_alone(call, refused):
    """Sizes and modes that can be brought together are; what is asked must fit what was learned."""
    mixed_sizes()
    picture("photos/cat/grey.png", mode="L")
    picture("photos/cat/palette.png", mode="P")
    picture("photos/cat/deep.png", mode="I;16")
    code, _, error = call("run", "cnn-cifar", "data=./photos", "size=16", *SMALL)
    assert code == 0, error
    (run,) = (path for path in Path("runs").iterdir() if path.is_dir())
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    np.savez("asked.npz", x=np.zeros((2, 16, 16), np.uint8))
    assert refused("predict", str(run), "asked.npz") == (
        "asked.npz (1, 16, 16) must have the shape (3, 16, 16) of the images that were learned; "
        "save it so, or train with size=N for images of any size"
    )
    picture("numbers.tif", mode="F")
    line = refused("predict", str(run), "numbers.tif")
    assert line == "numbers.tif has colour mode F; save it as grey or RGB"
    code, out, _ = call("predict", str(run), "photos/cat/grey.png", "photos/dog/3.png")
    assert code == 0
    assert out.count('"class"') == 2
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
