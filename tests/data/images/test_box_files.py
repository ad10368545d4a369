"""Boxes of COCO, YOLO and Pascal VOC: the same as our own file says, or one line of why not."""

import io
import json
import random
import shutil
from functools import cache
from xml.sax.saxutils import escape

import numpy as np
import pytest
import torch
from PIL import Image

from everynet.data import check, kinds, load
from everynet.data.images import box_files
from everynet.data.kinds.boxes import KIND
from everynet.system.errors import UserError

HEIGHT, WIDTH, NAMES = 10, 20, ("cat", "ant")
SCENES = {
    f"{n}.png": [(NAMES[box], (box + n % 5, 1 + box, n % 7 + 8, 9)) for box in range(n % 3)]
    for n in range(30)
}
"""For each image its boxes in pixels: some have none, one or two."""
SPLIT = {"train": range(20), "val": range(20, 25), "test": range(25, 30)}


@cache
def png(seed):
    content, random = io.BytesIO(), np.random.default_rng(seed)
    Image.fromarray(random.integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)).save(content, "PNG")
    return content.getvalue()


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(int(path.stem)))


def own(root, scenes=SCENES):
    """Our own layout, in parts where there are several."""
    lines = ["image,class,left,top,right,bottom"]
    for name, boxes in scenes.items():
        image(root / name)
        lines += [",".join([name, label, *map(str, edges)]) for label, edges in boxes]
    (root / "boxes.csv").write_text("\n".join(lines) + "\n")
    return root


def part_of(split, root, make):
    """A folder made by `make` for each part."""
    names = [*SCENES]
    for part, rows in split.items():
        make(root, part, {names[row]: SCENES[names[row]] for row in rows})
    return root


def annotations(scenes):
    """What a file of COCO says of scenes."""
    images = [
        {"id": 7 + n, "file_name": name, "height": HEIGHT, "width": WIDTH}
        for n, name in enumerate(scenes)
    ]
    found = [
        {
            "id": n,
            "image_id": 7 + row,
            "category_id": 3 + NAMES.index(label),
            "bbox": [left, top, right - left, bottom - top],
            "iscrowd": 0,
            "segmentation": [[1, 2, 3]],
        }
        for n, (row, label, (left, top, right, bottom)) in enumerate(
            (row, *box) for row, boxes in enumerate(scenes.values()) for box in boxes
        )
    ]
    categories = [{"id": 3 + n, "name": name} for n, name in enumerate(NAMES)]
    return {"info": {}, "images": images, "annotations": found, "categories": categories}


def coco(root, scenes=SCENES, where="images", file="annotations.json"):
    for name in scenes:
        image(root / where / name)
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(json.dumps(annotations(scenes)))
    return root


def labels(root, scenes, images="images", to="labels"):
    """What YOLO says of scenes; an image without a box has no file, or an empty one."""
    for name, boxes in scenes.items():
        image(root / images / name)
        lines = []
        for label, (left, top, right, bottom) in boxes:
            middle = (left + right) / 2 / WIDTH, (top + bottom) / 2 / HEIGHT
            size = (right - left) / WIDTH, (bottom - top) / HEIGHT
            lines.append(" ".join(map(str, (NAMES.index(label), *middle, *size))))
        path = (root / to / name).with_suffix(".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        if lines or name != "0.png":
            path.write_text("\n".join(lines))


def yolo(root, scenes=SCENES):
    labels(root, scenes)
    (root / "data.yaml").write_text("train: ../train/images\nnc: 2\nnames: ['cat', 'ant']\n")
    return root


def xml(name, boxes, size=(HEIGHT, WIDTH)):
    objects = "".join(
        f"<object><name>{escape(label)}</name><difficult>0</difficult><bndbox>"
        f"<xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax>"
        "</bndbox></object>"
        for label, (left, top, right, bottom) in boxes
    )
    shape = f"<size><width>{size[1]}</width><height>{size[0]}</height><depth>1</depth></size>"
    return f"<annotation><filename>{name}</filename>{shape}{objects}</annotation>"


def voc(root, scenes=SCENES):
    (root / "Annotations").mkdir(parents=True, exist_ok=True)
    for name, boxes in scenes.items():
        image(root / "JPEGImages" / name)
        (root / "Annotations" / name).with_suffix(".xml").write_text(xml(name, boxes))
    return root


def coco_parts(root):
    """The layout of COCO 2017."""
    return part_of(
        SPLIT,
        root,
        lambda r, part, s: coco(r, s, f"{part}2017", f"annotations/instances_{part}2017.json"),
    )


def coco_folders(root):
    """A file beside the images of each part."""
    return part_of(
        SPLIT,
        root,
        lambda r, part, s: coco(
            r / {"val": "valid"}.get(part, part), s, "", "_annotations.coco.json"
        ),
    )


def yolo_parts(root):
    part_of(SPLIT, root, lambda r, part, s: labels(r, s, f"images/{part}", f"labels/{part}"))
    (root / "classes.txt").write_text("cat\nant\n")
    return root


def yolo_folders(root):
    part_of(SPLIT, root, lambda r, part, s: labels(r / part, s))
    (root / "data.yaml").write_text("names:\n  0: cat\n  1: ant\n")
    return root


def voc_parts(root):
    voc(root)
    (root / "ImageSets" / "Main").mkdir(parents=True)
    for part, rows in SPLIT.items():
        lines = "".join(f"{row}\n" for row in rows)
        (root / "ImageSets" / "Main" / f"{part}.txt").write_text(lines)
    return root


def read(folder, **options):
    return load(folder, kind="boxes", batch_size=2, **options)


WHOLE = {"COCO": coco, "YOLO": yolo, "VOC": voc}
IN_PARTS = {
    "COCO": coco_parts, "COCO, beside": coco_folders, "YOLO": yolo_parts,
    "YOLO, beside": yolo_folders, "VOC": voc_parts,
}  # fmt: skip


# ------------------------------------------------------------------------------------------- good


def assert_same(found, wanted):
    """The same images with the same boxes in each part, in any order; YOLO rounds its boxes."""
    for part in ("train", "valid", "test"):
        mine, its = (
            sorted(zip(x.flatten(1).tolist(), y.tolist(), strict=True))
            for x, y in (found.splits[part], wanted.splits[part])
        )
        for (x, y), (other, t) in zip(mine, its, strict=True):
            assert x == other
            torch.testing.assert_close(torch.tensor(y), torch.tensor(t))


@pytest.mark.parametrize("layout", WHOLE)
def test_a_folder_is_read_as_our_own_file_says(tmp_path, layout):
    wanted, found = read(own(tmp_path / "own")), read(WHOLE[layout](tmp_path / "other"))
    assert found.spec["classes"] == wanted.spec["classes"] == ["ant", "cat"]
    assert found.spec["split"] == wanted.spec["split"]
    assert_same(found, wanted)


@pytest.mark.parametrize("layout", IN_PARTS)
def test_parts_are_those_that_the_files_name(tmp_path, layout):
    part_of(SPLIT, tmp_path / "own", lambda r, part, s: own(r / part, s))
    wanted, found = read(tmp_path / "own"), read(IN_PARTS[layout](tmp_path / "other"))
    assert found.spec["split"] == "train, valid and test are folders of their own"
    assert_same(found, wanted)


@pytest.mark.parametrize("layout", WHOLE)
def test_a_look_over_tells_the_layout_and_counts(tmp_path, layout):
    root = WHOLE[layout](tmp_path)
    assert kinds.matching(root) is KIND
    report = check(root)
    assert report.good, report
    assert f"format     {layout}" in str(report)
    assert {name: sum(parts.values()) for name, parts in report.classes.items()} == {
        "ant": 10,
        "cat": 20,
    }
    assert "format     boxes.csv" in str(check(own(tmp_path / "own")))


@pytest.mark.parametrize("layout", WHOLE)
def test_predict_reads_the_images_of_a_folder_and_evaluate_its_boxes(tmp_path, layout):
    root = WHOLE[layout](tmp_path / "a")
    data = read(root)
    names, images = KIND.read([root], data.spec)
    assert len(names) == len(images) == 30
    found = KIND.find(root, like=data.spec)
    x, y = found.parts["test"]
    assert len(x) == 30
    assert int((y[..., 0] >= 0).sum()) == 30


def test_a_digest_follows_the_boxes(tmp_path):
    before = read(yolo(tmp_path)).digest
    assert read(tmp_path).digest == before
    (tmp_path / "labels" / "1.txt").write_text("1 0.5 0.5 0.5 0.5")
    assert read(tmp_path).digest != before


def test_an_image_that_cannot_be_read_is_skipped_with_its_boxes(tmp_path):
    for name, make in WHOLE.items():
        root = make(tmp_path / name)
        (next(path for path in root.rglob("4.png"))).write_bytes(b"broken")
        data = read(root)
        assert sum(data.rows(part) for part in ("train", "valid", "test")) == 29
        assert "1 of 30 files was skipped: 1 cannot be read" in str(check(root))


def test_what_is_cut_or_left_out_is_said(tmp_path):
    root = coco(tmp_path)
    document = annotations(SCENES)
    document["annotations"][0]["bbox"] = [-0.4, 1, 21, 8]  # ends within a pixel of the edge
    document["annotations"][1]["bbox"] = [1, 1, 0, 8]
    document["annotations"][2]["iscrowd"] = document["annotations"][3]["iscrowd"] = 1
    (root / "annotations.json").write_text(json.dumps(document))
    report = check(root)
    assert report.good
    assert report.remarks[-3:] == [
        "1 box is less than a pixel outside of the image, and cut there",
        "1 box is without width or height, and left out",
        "2 boxes are around many objects at once (iscrowd), and left out",
    ]
    _, y = read(root).splits["train"]
    assert float(y[..., 1:].min()) >= 0
    assert float(y[..., 1:].max()) <= 1


def test_only_trainval_and_no_list_of_images(tmp_path):
    root = voc_parts(tmp_path / "a")
    main = root / "ImageSets" / "Main"
    (main / "train.txt").unlink()
    (main / "trainval.txt").write_text("".join(f"{row}  1\n" for row in range(25)))
    data = read(root)
    assert data.spec["split"].startswith("folders of their own; by hash of the file name, a tenth")
    assert data.rows("test") == 5
    shutil.rmtree(root / "ImageSets")
    assert read(root).spec["split"].startswith("by hash of the file name, a fifth")


@pytest.mark.parametrize(
    "text",
    [
        "names: [cat, ant]",
        "names: ['cat', \"ant\"]  # two",
        "names: ['cat',\n  'ant']",
        "names: {0: cat, 1: ant}",
        "names:\n- cat\n- ant\nval: x",
        "names:  # below\n  - cat\n  - 'ant'\n",
        'path: ../x\nnames:\n  0: cat\n\n  1: "ant"  # small\nnc: 2 # of them\n',
    ],
)
def test_names_in_yaml(tmp_path, text):
    yolo(tmp_path)
    (tmp_path / "data.yaml").write_text(text)
    assert box_files._yolo_names(tmp_path) == ["cat", "ant"]


def test_names_of_several_words(tmp_path):
    yolo(tmp_path)
    (tmp_path / "data.yaml").write_text("names: [traffic light, 'dog''s bed']")
    assert box_files._yolo_names(tmp_path) == ["traffic light", "dog's bed"]


# -------------------------------------------------------------------------------------------- bad


@pytest.mark.parametrize(
    "text",
    [
        "names: cat",
        "names: [cat, ant",
        "names: []",
        "names:",
        "names: [*a, ant]",
        "names: [cat, [ant]]",
        "names: {0: cat, 2: ant}",
        "names: {cat: 0}",
        "names: [- cat]",
        "names:\n  - cat\n  1: ant",
        "names:\n  - cat\n  -ant",
        "names: ['cat, ant']",
        "names: ! [cat]",
        'names: ["c\\x61t"]',
    ],
)
def test_yaml_that_is_no_list_of_names_is_refused(tmp_path, text):
    yolo(tmp_path)
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(UserError, match=r"data.yaml: names must be a list of classes, such as"):
        read(tmp_path)


def changed(row=0, where="annotations", **values):
    """COCO with an object changed; a value of None takes its key away."""

    def do(root):
        document = annotations(SCENES)
        document[where][row] |= values
        for name in [name for name, value in values.items() if value is None]:
            del document[where][row][name]
        (coco(root) / "annotations.json").write_text(json.dumps(document))

    return do


def coco_says(content):
    return lambda root: (coco(root) / "annotations.json").write_text(content)


def label_says(text, name="1"):
    return lambda root: (yolo(root) / "labels" / f"{name}.txt").write_text(text)


def xml_says(text, name="1"):
    return lambda root: (voc(root) / "Annotations" / f"{name}.xml").write_text(text)


def without(make, name):
    return lambda root: next((make(root)).rglob(name)).unlink()


def listed(text):
    return lambda root: (voc_parts(root) / "ImageSets" / "Main" / "val.txt").write_text(text)


def two_files(root):
    coco(root)
    shutil.copy(root / "annotations.json", root / "instances_default.json")


BOMB = '<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><annotation>&c;</annotation>'
BAD = {
    "no such image": (without(coco, "4.png"), r"annotations.json: images 5: image 4.png is not in"),
    "no image at all": (lambda root: shutil.rmtree(coco(root) / "images"),
                        r"images 1: image 0.png is not there; put the images into .*images"),
    "another folder": (changed(where="images", file_name="../0.png"), r"file_name \(\.\./0.png\)"),
    "absolute": (changed(where="images", file_name="/etc/passwd"), "must be a path in the folder"),
    "no name": (changed(where="images", file_name=None), r"file_name \(None\) must be a path"),
    "one id for two": (changed(where="images", id=8), r"images 2: id \(8\) must be that of one im"),
    "twice": (changed(where="images", file_name="1.png"), r"1.png must be named once; it is twice"),
    "another size": (changed(where="images", width=40), r"the size \(40x10\) must be that of .*0."),
    "unknown category": (changed(category_id=99), r"annotations 1: category_id \(99\) is in no ca"),
    "unknown image": (changed(image_id=1), r"annotations 1: image_id \(1\) is in no images"),
    "a list for an id": (changed(image_id=[1]), r"image_id \(\[1\]\) is in no images"),
    "negative": (changed(bbox=[9, 1, -4, 4]), r"annotations 1: the box must not have a negative w"),
    "outside": (changed(bbox=[9, 1, 40, 4]), r"the box \(9, 1, 49, 5\) must lie in the image of 2"),
    "left of it": (changed(bbox=[-2, 1, 4, 4]), r"the box \(-2, 1, 2, 5\) must lie in the image"),
    "not a number": (changed(bbox=[float("nan"), 1, 4, 4]), r"the box \(nan, 1, nan, 5\) must lie"),
    "huge": (changed(bbox=["1e400", 1, 4, 4]), r"the box \(inf, 1, inf, 5\) must lie in the image"),
    "no box": (changed(bbox=None), r"annotations 1: bbox \(None\) must be \[x, y, width, height\]"),
    "three": (changed(bbox=[1, 2, 3]), r"bbox \(\[1, 2, 3\]\) must be \[x, y, width, height\]"),
    "a nameless class": (changed(where="categories", name=" "), r"categories 1: its name \( \) mu"),
    "no id": (changed(where="categories", id=None), r"categories 1: id \(None\) must be a number"),
    "no object": (coco_says('{"images": [1], "annotations": [], "categories": []}'),
                  r"images 1 must be an object with an id"),
    "no list": (coco_says('{"images": [], "annotations": {}, "categories": []}'),
                r"annotations.json must hold a list annotations, as files of COCO do"),
    "no JSON": (coco_says('{"images": ['), r"annotations.json must be JSON: Expecting value"),
    "deep JSON": (coco_says('{"images": ' + "[" * 10**6), r"annotations.json must be JSON: "),
    "two files": (two_files, r"annotations.json must be named after one of train, val or t"),
    "no label's image": (without(yolo, "4.png"), r"4.txt must have an image of its name in .*imag"),
    "no names": (without(yolo, "data.yaml"), r"must hold data.yaml or classes.txt with the names"),
    "six numbers": (label_says("0 .5 .5 .1 .1 .9"), r"1.txt:1: 6 numbers must be 5, the class and"),
    "a polygon": (label_says("\n0 .5 .5 .1 .1 .2 .3 .4 .4"), r"1.txt:2: 9 numbers must be 5"),
    "class 2 of 2": (label_says("2 .5 .5 .1 .1"), r"1.txt:1: class 2 must be from 0 to 1"),
    "class -1": (label_says("-1 .5 .5 .1 .1"), r"1.txt:1: class -1 must be from 0 to 1"),
    "a word": (label_says("cat .5 .5 .1 .1"), r"1.txt:1: class cat must be from 0 to 1"),
    "long class": (label_says("9" * 9000 + " .5 .5 .1 .1"), r"1.txt:1: class 9+\.\.\.9+ must be"),
    "pixels": (label_says("0 5 5 2 2"), r"1.txt:1: the box \(80, 40, 120, 60\) must lie in the im"),
    "words": (label_says("0 a b c d"), r"1.txt:1: the box \(nan, nan, nan, nan\) must lie"),
    "bytes": (lambda root: (yolo(root) / "labels" / "1.txt").write_bytes(b"\xff\xfe0"),
              r"1.txt must be text in UTF-8"),
    "wrong count": (lambda root: (yolo(root) / "data.yaml").write_text("nc: 3\nnames: [cat, ant]"),
                    r"data.yaml: nc must be the number of names, 2"),
    "no xml's image": (without(voc, "4.png"), r"4.xml must have an image of its name in JPEGImage"),
    "not xml": (xml_says("<annotation><object>"), r"1.xml must be XML: no element found"),
    "entities": (xml_says(BOMB), r"1.xml must not declare a document type \(DOCTYPE\)"),
    "another shape": (xml_says(xml("1.png", [], (9, 20))), r"1.xml: the size \(20x9\) must be tha"),
    "beyond": (xml_says(xml("1.png", [("cat", (1, 2, 30, 9))])), r"1.xml: object 1: the box \(1,"),
    "no edges": (xml_says("<a><object><name>cat</name></object></a>"), r"object 1: the box \(nan,"),
    "no class": (xml_says(xml("1.png", [("", (1, 2, 3, 9))])), r"object 1: its name \(\) must be"),
    "a list of none": (listed("99\n"), r"val.txt:1: image 99 is not in JPEGImages; did you mean"),
    "in two parts": (listed("1\n"), r"1.png must be named once; it is twice, or in two parts"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path, case):
    make, message = BAD[case]
    make(tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert check(tmp_path, kind="boxes").refused == str(caught.value)


def test_a_part_without_training_is_refused(tmp_path):
    root = yolo_parts(tmp_path)
    for name in ("images", "labels"):
        shutil.rmtree(root / name / "train")
    with pytest.raises(UserError, match="must have a part train beside it"):
        read(root)


def test_how_many_boxes_there_may_be_is_bounded(tmp_path, monkeypatch):
    coco(tmp_path)
    monkeypatch.setattr(box_files, "MOST_BOXES", 1)
    with pytest.raises(UserError, match=r"image 2.png must have at most 1 boxes, because every im"):
        read(tmp_path)
    monkeypatch.setattr(box_files, "MOST_BOXES", 9)
    monkeypatch.setattr("everynet.data.kinds.boxes.MOST_ROOM", 59)
    with pytest.raises(UserError, match=r": 2 boxes on one of 30 images must be fewer, because"):
        read(tmp_path)
    monkeypatch.setattr(box_files, "MOST_BYTES", 99)
    with pytest.raises(UserError, match=r"annotations\.json must be at most 99 bytes long"):
        read(tmp_path)


def test_a_file_that_is_called_so_and_is_something_else_makes_no_boxes(tmp_path):
    for label in ("a", "b"):
        for n in range(3):
            image(tmp_path / label / f"{n}.png")
    (tmp_path / "annotations.json").write_text('{"author": "me"}')
    assert not KIND.matches(tmp_path)
    for name in ("none", "x" * 300, "a\0b"):
        assert not KIND.matches(tmp_path / name)


@pytest.mark.parametrize("layout", WHOLE)
def test_damaged_files_end_in_one_line(tmp_path, layout):
    """Bytes of the files of boxes are changed, cut and doubled at random."""
    root, draw = WHOLE[layout](tmp_path), random.Random(0)
    path = {"COCO": "annotations.json", "YOLO": "data.yaml", "VOC": "Annotations/1.xml"}[layout]
    whole = (root / path).read_bytes()
    refused = 0
    for _ in range(60):
        spoiled, at = bytearray(whole), draw.randrange(len(whole))
        match draw.randrange(3):
            case 0:
                spoiled[at] = draw.randrange(256)
            case 1:
                del spoiled[at : at + draw.randrange(1, 40)]
            case _:
                spoiled[at:at] = spoiled[: draw.randrange(40)]
        (root / path).write_bytes(bytes(spoiled))
        report = check(root, kind="boxes")  # which raises nothing but a UserError
        refused += bool(report.refused)
        assert "\n" not in report.refused
    assert refused >= 20
