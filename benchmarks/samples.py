"""How good the images of trained networks are, side by side: GAN, VAE, PixelCNN, diffusion.

    python benchmarks/samples.py RUN [RUN ...]            10,000 images of each, into RESULTS.md
    python benchmarks/samples.py RUN [RUN ...] --n 500    a quick look, written nowhere

RUN is the folder of a run, the last letters of its name, or `latest`: of any network whose `sample`
makes images. Each makes as many images, and one small classifier looks at all that were made after
the same data, and at test images of it: what it gives is defined in `metrics/samples.py`. A network
that draws black and white pixels is shown to a second one, which has learned images whose pixels
were drawn so, and beside it stand test images drawn so; in the last column all images were drawn
so, grey ones by their values, and are compared on the features of that second one.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import side_by_side
from everynet.data import load
from everynet.data.dataset import Data
from everynet.metrics.samples import classes_present, frechet_distance, recognised
from everynet.recipes.run_names import run_folder
from everynet.runs.folder import open_run
from everynet.runs.predict import Predictor
from everynet.system.errors import UserError
from everynet.system.values import verb_settings
from everynet.training.device import choose, computing
from everynet.zoo.generative.binary_images import draw_held_out, unit_images
from everynet.zoo.generative.sample_quality import classify, train_classifier

IMAGES = 10_000
HEAD = (
    "| images of | pixels | recognised | classes | Frechet distance | the same, drawn black and "
    "white |\n| --- | --- | --- | --- | --- | --- |"
)


@dataclass
class Made:
    """The images of a run, from 0 to 1, and the data that it learned."""

    name: str
    data: str
    size: int
    images: Tensor

    @property
    def binary(self) -> bool:
        """Whether all pixels are black or white."""
        return bool(((self.images == 0) | (self.images == 1)).all())


def make_images(word: str, n: int, device: str) -> Made:
    """What a run makes; one that makes no images is refused in one line."""
    folder = run_folder(word)
    predictor = Predictor.of(open_run(folder), device=device)
    recipe, spec = predictor.recipe, predictor.spec
    if spec.get("kind") != "image" or recipe.writes or not getattr(recipe, "data", ""):
        raise UserError(
            f"{word} ({recipe.name}) must be the run of a network that makes images like those of "
            "its data; try one of vae-mnist"
        )
    settings: dict[str, Any] = {"n": n}
    if "pixels" in verb_settings(recipe.sample):
        settings["pixels"] = True  # of a VAE: pixels, not their probabilities
    images = predictor.sample(settings)
    if not isinstance(images, Tensor) or images.dim() != 4:
        raise UserError(f"{word} ({recipe.name}) must make images, and it makes something else")
    size = int(spec.get("size") or 0)
    return Made(f"{recipe.name} ({folder.name[-6:]})", str(recipe.data), size, images.float())


class Reference:
    """Real images with one sort of pixels, and a classifier that has learned such."""

    def __init__(self, data: Data, n: int, steps: int, *, binary: bool) -> None:
        self.data = draw_held_out(data) if binary else data
        self.network = train_classifier(self.data, steps, 0, binary=binary)
        self.test, train = (self.real(part, n) for part in ("test", "train"))
        self.features = self.look(self.test)[1]
        self.floor = self.distance(draw(train) if binary else train)

    def real(self, part: str, n: int) -> Tensor:
        """As many real images as there are, up to n."""
        images: Tensor = self.data.some(part, torch.arange(min(n, self.data.rows(part))))[0]
        return images

    def look(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of classes, and features."""
        return classify(self.network, self.data.spec, images)

    def distance(self, images: Tensor) -> float:
        """The Frechet distance of images from test images."""
        return frechet_distance(self.features, self.look(images)[1]).item()


def draw(images: Tensor) -> Tensor:
    """Black and white pixels of grey values, each time the same."""
    u = torch.rand(images.shape, generator=torch.Generator().manual_seed(1))
    return (u < images).float()


def table(made: Sequence[Made], n: int, steps: int) -> str:
    """A row for each run, below one for real images of each sort of pixels."""
    data = unit_images(load(made[0].data, kind="image", batch_size=64, size=made[0].size))
    data = data.to(torch.device("cpu"), torch.float32)
    grey, sorts = data.spec["shape"][0] == 1, {one.binary for one in made}
    known = {
        binary: Reference(data, n, steps, binary=binary)
        for binary in (False, True)
        if binary in sorts or (binary and grey)
    }
    rows = [("test images", binary, known[binary].test) for binary in known if binary in sorts]
    rows += [(one.name, one.binary, one.images) for one in made]
    lines = [HEAD]
    for name, binary, images in rows:
        reference = known[binary]
        probabilities, _ = reference.look(images)
        away = reference.floor if name == "test images" else reference.distance(images)
        drawn = f"{known[True].distance(draw(images)):.2f}" if True in known else ""
        share, classes = recognised(probabilities).item(), classes_present(probabilities)
        pixels = "black and white" if binary else "of all values"
        lines.append(f"| {name} | {pixels} | {share:.1%} | {classes} | {away:.2f} | {drawn} |")
    return "\n".join(lines)


def main() -> int:
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="folders of runs")
    parser.add_argument("--n", type=int, default=IMAGES, help=f"images of each ({IMAGES:,})")
    parser.add_argument("--steps", type=int, default=3000, help="updates of the classifier (3000)")
    parser.add_argument("--device", default="auto", help="on which images are made")
    given = parser.parse_args()
    if not given.runs:
        print("samples: no run is named, so nothing is compared; see --help")
        return 0
    made: list[Made] = []
    with computing(choose("cpu")), torch.no_grad():
        for word in given.runs:
            try:
                made.append(make_images(word, given.n, given.device))
            except UserError as error:
                print(f"left out: {error}", file=sys.stderr)
        parts = []
        for data, size in dict.fromkeys((one.data, one.size) for one in made):
            same = [one for one in made if (one.data, one.size) == (data, size)]
            title = f"### {data}" + (f", {size} x {size}" if size else "")
            parts.append(f"{title}\n\n{table(same, given.n, given.steps)}")
            print(parts[-1], flush=True)
    if not made:
        return 2
    about = (
        f"{given.n:,} images of each run. Recognised: a classifier that was trained on the same "
        "data gives them a class with at least 90 %; of test images the distance is that of "
        "training images from them, which is as near as one can come.\n\n"
        + side_by_side.machine(Path(sys.executable))
    )
    if given.n >= IMAGES:
        side_by_side.write("samples", ["## Samples of generative networks", about, *parts])
    else:
        print(f"\n{about}\n\nFewer than {IMAGES:,}: benchmarks/RESULTS.md was left as it was.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
