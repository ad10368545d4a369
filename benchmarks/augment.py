"""Random crops with flips, and random affine maps: whole batches, beside kornia and torchvision.

    python benchmarks/augment.py                     the table of benchmarks/RESULTS.md
    python benchmarks/augment.py --device cuda       the same on a GPU, a section of its own
    python benchmarks/augment.py --batches 5 --repeats 1    a quick look, written nowhere

Batches of 128 images of 3 x 32 x 32 in float32: a window of 32 x 32 after a border of 4 pixels and
a mirror for half of them, or turned by up to 10 degrees, moved by up to a tenth and scaled by up to
a tenth. Each peer is called as its documentation shows: kornia on the batch, torchvision's v2 on
one image after another as its datasets do (and, not judged, on the batch, where all images of a
batch get the same change).
"""

import argparse
import importlib
import importlib.metadata
import sys
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, arguments

BATCH, SIDE, BORDER = 128, 32, 4
DEGREES, MOVE, SCALE = 10, 0.1, 0.1


def images(job: Job):
    """One batch, on the device."""
    import torch

    return torch.rand(BATCH, 3, SIDE, SIDE).to(job["device"])


def repeated(once: Callable[[], object], job: Job) -> Callable[[], object]:
    """The work of a turn: all batches, and what is still under way on a GPU."""
    import torch

    def work() -> None:
        for _ in range(job["batches"]):
            once()
        if job["device"] == "cuda":
            torch.cuda.synchronize()

    work()  # what is made or chosen at the first call is set-up
    return work


def with_everynet(job: Job) -> Callable[[], object]:
    import torch

    from everynet.data.draws import Draw
    from everynet.data.images.augment import affine, compose, crop, flip

    x, numbers = images(job), torch.Generator(job["device"]).manual_seed(0)
    change = {
        "crop": compose(crop(SIDE, BORDER, fill=0), flip()),
        "affine": affine(DEGREES, MOVE * SIDE, SCALE, fill=0),
    }[job["change"]]
    return repeated(lambda: change((x,), Draw(numbers, BATCH, device=x.device)), job)


def with_kornia(job: Job) -> Callable[[], object]:
    import kornia.augmentation as kornia
    import torch

    x = images(job)
    change = {
        "crop": lambda: torch.nn.Sequential(
            kornia.RandomCrop((SIDE, SIDE), padding=BORDER), kornia.RandomHorizontalFlip()
        ),
        "affine": lambda: kornia.RandomAffine(
            DEGREES, translate=(MOVE, MOVE), scale=(1 - SCALE, 1 + SCALE), p=1.0
        ),
    }[job["change"]]()
    return repeated(lambda: change(x), job)


def with_torchvision(whole: bool) -> Callable[[Job], Callable[[], object]]:
    def prepare(job: Job) -> Callable[[], object]:
        transforms = torchvision_transforms()
        x = images(job)
        change = {
            "crop": lambda: transforms.Compose(
                [transforms.RandomCrop(SIDE, BORDER), transforms.RandomHorizontalFlip()]
            ),
            "affine": lambda: transforms.RandomAffine(
                DEGREES, translate=(MOVE, MOVE), scale=(1 - SCALE, 1 + SCALE),
                interpolation=transforms.InterpolationMode.BILINEAR,
            ),
        }[job["change"]]()  # fmt: skip
        if whole:
            return repeated(lambda: change(x), job)
        return repeated(lambda: [change(image) for image in x], job)

    return prepare


def torchvision_transforms():
    """torchvision's v2, also where its plain build stands beside a CPU build of torch.

    There its compiled part is missing, which none of this uses; two operators of it must be known
    by name for the rest to be imported.
    """
    import torch

    try:
        return importlib.import_module("torchvision.transforms.v2")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        made = importlib.import_module("torchvision.transforms.v2")
        made.keep = library  # its operators go with it
        return made


def contestants() -> list[Contestant]:
    """Ours first: five times as fast as image by image, half as fast again as kornia's batches."""
    try:
        ours = importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:  # src is on the path, and that is enough
        ours = ""
    vision = ("torch", "torchvision")
    return [
        Contestant("everynet", with_everynet, "everynet.data.images.augment", ours),
        Contestant("kornia, a batch", with_kornia, "kornia.augmentation", "kornia", reach=1.5),
        Contestant("torchvision v2, an image", with_torchvision(False), *vision, reach=5.0),
        Contestant("torchvision v2, a batch, all alike", with_torchvision(True), *vision),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    chosen, sys.argv[1:] = parser.parse_known_args()
    given = arguments(__doc__.splitlines()[0], contestants(), repeats=7, batches=20)
    page = Page("augment", __file__, given)
    where = ""
    if chosen.device == "cuda":
        import torch

        page.name = "augment-cuda"
        where = f" On {torch.cuda.get_device_name()}."
    titles = {"crop": "crop after a border of 4 pixels, and flip", "affine": "affine, bilinear"}
    for change, title in titles.items():
        if given.part in ("", change):
            job = {
                "device": chosen.device, "change": change, "batches": given.batches, "threads": 1,
            }  # fmt: skip
            page.round(f"{given.batches} batches: {title}", contestants(), job)
    page.close(
        "Augmentation of 128 images of 3 x 32 x 32" + (" on a GPU" if where else ""),
        f"Float32, one thread; best of {given.repeats} alternating turns of {given.batches} "
        f"batches, each library in a process of its own.{where} The change of an image is its own, "
        "but in the last row, where one change is drawn for all images of a batch.",
        part=given.part,
    )


if __name__ == "__main__":
    sys.exit(main())
