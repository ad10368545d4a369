"""A user's own scans with masks: checked, learned from, asked about, and one bad file refused."""

import json
from shutil import copy

import numpy as np
import pytest
from PIL import Image

SETTINGS = ("size=64", "steps=4", "batch_size=4", "width=2", "depth=2")


def scans(folder, count=16, side=48):
    """Photographs in colour with a bright disc each; masks of 0 and 255."""
    random = np.random.default_rng(0)
    at = np.arange(side)
    for below in ("images", "masks"):
        (folder / below).mkdir(parents=True)
    for number in range(count):
        row, column = random.integers(12, side - 12, 2)
        disc = (at[:, None] - row) ** 2 + (at - column) ** 2 < 81
        image = random.integers(0, 60, (side, side, 3)) + 150 * disc[..., None]
        Image.fromarray(image.astype(np.uint8)).save(folder / "images" / f"scan {number}.v1.png")
        Image.fromarray((255 * disc).astype(np.uint8)).save(
            folder / "masks" / f"scan {number}.v1.png"
        )
    (folder / "classes.txt").write_text("tissue\ncell\n")


@pytest.fixture
def folder(tmp_path):
    scans(tmp_path / "scans")
    return tmp_path / "scans"


def test_checked_learned_from_and_asked_about(call, folder, tmp_path):
    code, out, _ = call("data", "check", "scans")
    assert code == 0
    assert out.splitlines()[0] == "scans: images with masks, segmentation"
    assert "class      cell: " in out
    assert out.splitlines()[-1] == "good"
    code, out, error = call("run", "unet", "data=./scans", *SETTINGS, "--out", "runs")
    assert code == 0, error
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    asked = [str(folder / "images" / f"scan {number}.v1.png") for number in (3, 4)]
    code, out, error = call("predict", str(run), *asked, "--out", "made")
    assert code == 0, error
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["input"] for line in lines] == asked
    assert [line["mask"] for line in lines] == [
        "made/scan-3-v1-mask.png",
        "made/scan-4-v1-mask.png",
    ]
    for line in lines:
        assert set(line["classes"]) == {"tissue", "cell"}
        with Image.open(tmp_path / line["mask"]) as image:  # as the user's own: 48 x 48, 0 and 255
            assert (image.mode, image.size) == ("L", (48, 48))
            assert set(np.unique(image)) <= {0, 255}
            share = (np.asarray(image) == 255).mean()
        assert line["classes"]["cell"] == pytest.approx(share)
        with Image.open(tmp_path / line["overlay"]) as image:
            assert (image.mode, image.size) == ("RGB", (48, 48))

    code, out, error = call("predict", str(run), asked[0], "--out", "preds.csv")
    assert (code, out) == (0, "preds.csv\n"), error
    header, row = (tmp_path / "preds.csv").read_text().splitlines()
    assert header.startswith("row,id,input,mask,classes.tissue,classes.cell,overlay,warning,error")
    assert row.split(",")[3] == "preds/scan-3-v1-mask.png"
    code, out, error = call("predict", str(run), asked[0], "--out", "a.jpg")
    assert code == 2
    assert error == (
        "everynet: --out (a.jpg) must be a folder or end in .png, because pictures are made, or in "
        ".csv or .jsonl for a table\n"
    )

    np.savez("many.npz", x=np.zeros((2, 64, 64, 3), np.uint8))
    (tmp_path / "other").mkdir()
    copy(asked[0], tmp_path / "other")
    inputs = ("scans/images/scan 3.v1.png", "other/scan 3.v1.png", "many.npz")
    code, out, error = call("predict", str(run), *inputs, "--out", "more")
    assert code == 0, error
    assert [json.loads(line)["mask"] for line in out.splitlines()] == [
        "more/scan-3-v1-mask.png",
        "more/scan-3-v1-2-mask.png",  # no mask is written over another
        "more/many-0-mask.png",
        "more/many-1-mask.png",
    ]


def test_a_mask_of_another_size_is_answered_in_one_line(call, refused, folder):
    Image.fromarray(np.zeros((40, 48), np.uint8)).save(folder / "masks" / "scan 5.v1.png")
    line = refused("run", "unet", "data=./scans", *SETTINGS)
    assert line == (
        "scans/masks/scan 5.v1.png (48x40) must be as large as scans/images/scan 5.v1.png (48x48), "
        "because they are taken pixel by pixel; save it in that size"
    )
    code, out, _ = call("data", "check", "scans")
    assert code == 2
    assert f"refused    {line}" in out.splitlines()


def test_a_size_that_cannot_be_halved_is_answered_in_one_line(refused, folder):
    line = refused("run", "unet", "data=./scans", "size=50", "steps=4", "batch_size=4")
    assert line == (
        "size (50: images of 50x50) must be divisible by 8, because each of depth (3) levels "
        "halves the image; do size=48"
    )
