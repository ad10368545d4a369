"""Kinds of data: each is one file that knows everything about its sort.

A kind turns files or a known dataset into `Data`, reads the inputs of a trained network exactly as
its training data was read, writes what a network made, and looks the user's files over. Nothing
outside of `everynet.data` asks what kind it has. A new kind is one new file here with a `KIND`, or
a file of one's own that calls `everynet.data.register(Kind())`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar

from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.paths import kind as kind_of_path
from everynet.data.paths import regular
from everynet.data.report import Report
from everynet.data.texts.tokens import NAMES
from everynet.system.errors import UserError
from everynet.system.wording import shown, unknown

if TYPE_CHECKING:
    from everynet.data.dataset import Data
    from everynet.data.in_memory import Given, Part

S = TypeVar("S")
Inputs: TypeAlias = Annotated[Sequence[Any] | Tensor, "files, read as predict reads its inputs"]
"""Inputs of a network, one after another: the rows of a tensor, or unequal ones.

A setting of `sample` of this type names files, or has what `predict` takes from Python.
"""

ORDER = (
    *("notes", "boxes", "mask", "map", "sound", "labelled", "image", "table", "pairs", "text"),
    "lines",
)
"""The kinds of the package; those that ask for more of a path come first."""

ON_REQUEST = ("unlabelled",)
"""Kinds that a path never looks like by itself: a recipe asks for them."""

_added: dict[str, Kind[Any]] = {}


@dataclass(frozen=True)
class Origin:
    """Where an input comes from, so that its answer is in its own units."""

    name: str | int
    """Its file, with the row where that holds several; in memory its number."""
    id: str = ""
    """What a column of ids has for it."""
    size: tuple[int, int] | None = None
    """Height and width in pixels of an image, before it was resized for the network."""
    error: str = ""
    """Why this one of several inputs of a file cannot be read; its place among them is filled."""
    pixels: Callable[[], Tensor] | None = None
    """Reads that image again, to draw onto it: channels x height x width, uint8."""


class Kind(Generic[S]):
    """One sort of data; `S` is the type of its samples before they are made into numbers."""

    name: ClassVar[str]
    about: ClassVar[str]
    """What the user's files of this kind are, to go on from "must be": words of a refusal."""
    suffix: ClassVar[str] = ""
    """How a file of it ends, where standard input does not say."""
    together: ClassVar[int] = 256
    """So many files are read at once; if one is bad, they are read in halves until it is found."""
    in_memory: ClassVar[str] = ""
    """What a caller may give in memory, to go on from "must be"; empty where it is nothing."""
    own_parts: ClassVar[bool] = False
    """Whether `from_memory` keeps the parts that a caller made."""
    drawn: ClassVar[bool] = False
    """Whether predictions are pictures, or can be drawn onto the input."""
    of_texts: ClassVar[bool] = False
    """Whether a string among the inputs is a text, not the name of a file."""
    skips_empty_lines: ClassVar[bool] = False
    """Whether an empty line of a file is passed over; elsewhere it is refused."""

    def matches(self, path: Path) -> bool:
        """Whether a path looks like this kind: words a refusal and tells `data check`."""
        raise NotImplementedError  # every kind says it

    def matches_like(self, path: Path, spec: Spec) -> bool:
        """Whether a path looks like what a run learned from."""
        return self.matches(path)

    def is_sure(self, path: Path) -> bool:
        """Whether the beginning of a file that looks like several kinds speaks for this one."""
        return False

    def guess_task(self, path: Path) -> str:
        """What is learned from such a file or folder, where that is plain without reading it."""
        return ""

    def find(self, path: Path, *, like: Spec | None = None) -> S:
        """The samples in the user's files; a subclass may take options.

        With `like`, the description of a run, a trained network is evaluated on them: the test part
        that the user made, or else all of them, is every part. A kind without it cannot do that.
        """
        raise NotImplementedError  # every kind says it

    def data(self, samples: S, *, batch_size: int, seed: int = 0, like: Spec | None = None) -> Data:
        """Samples as numbers, with their description; a subclass may take options.

        With `like` they are treated as that description says, and nothing is learned of them.
        """
        raise NotImplementedError  # every kind says it

    def reads_lines(self, spec: Spec) -> bool:
        """Whether each line of a file is one input, and so can be predicted when it comes."""
        return False

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], Inputs]:
        """What `predict` is given, treated as in training, with a name for each."""
        raise NotImplementedError  # every kind says it

    def read_with_origins(
        self, paths: Sequence[str | Path], spec: Spec
    ) -> tuple[list[Origin], Inputs]:
        """What `read` gives, with the origin of each input in the place of its name."""
        names, inputs = self.read(paths, spec)
        return [Origin(name) for name in names], inputs

    def convert_with_origins(self, x: Part, spec: Spec) -> tuple[list[Origin], Inputs]:
        """What `convert` gives, with the origin of each input."""
        inputs = self.convert(x, spec)
        return [Origin(row) for row in range(len(inputs))], inputs

    def files(self, paths: Sequence[str | Path]) -> list[Path]:
        """What `predict` is given, file by file: what is wrong with one is said of it alone."""
        return expanded(paths)

    def outliers(self, inputs: Inputs, spec: Spec) -> list[str]:
        """For each of what `read` gave, why it is an outlier; "" where it is none."""
        return [""] * len(inputs)

    def from_memory(self, given: Given) -> S | None:
        """The samples that a caller has in memory, None where they are of another kind."""
        return None

    def convert(self, x: Part, spec: Spec) -> Inputs:
        """What `predict` is given in memory, treated as in training."""
        raise UserError(f"inputs of {self.name} data must be in files; name them")

    def stored(self, x: Part, spec: Spec) -> Tensor:
        """The same as `data` stores it where batches are prepared later, as large images are."""
        raise UserError(f"inputs of {self.name} data are prepared at once")

    def to_data_units(self, made: Any, spec: Spec) -> Any:  # noqa: ANN401 -- by kind
        """What `sample` or `predict` made, in the units of the data."""
        return made

    def answer(self, prediction: Mapping[str, Any], spec: Spec, origin: Origin) -> dict[str, Any]:
        """A prediction, its tensors in the units of the data and in the size of the input."""
        return {
            key: self.to_data_units(value[None], spec)[0] if hasattr(value, "shape") else value
            for key, value in prediction.items()
        }

    def overlay(self, answer: Mapping[str, Any], spec: Spec, origin: Origin) -> Tensor | None:
        """The image that was predicted from, with the answer drawn onto it; None for no image."""
        return None

    def write(self, made: Any, spec: Spec, path: Path) -> list[Path]:  # noqa: ANN401 -- by kind
        """Write what is in the units of the data, as `path` with an ending; the files written."""
        raise UserError(f"{self.name} data has no way to be written; make no samples of it")

    def check(self, path: Path, **options: Any) -> Report:  # noqa: ANN401 -- those of `find`
        """What is in the user's files and what is wrong with them."""
        report = Report(shown(path), kind=self.name)
        try:
            self.look_over(path, report, **options)
        except UserError as error:
            report.refused = str(error)
        return report

    def look_over(self, path: Path, report: Report, **options: Any) -> None:  # noqa: ANN401
        """Put what is in the user's files into a report."""
        self.count(self.find(path, **options), report)

    def count(self, samples: S, report: Report) -> None:
        """Put what the samples are into a report."""
        raise NotImplementedError  # every kind says it

    def line(self, spec: Spec) -> str:
        """The data in one line for the card."""
        return str(spec.get("name", "none"))

    def axes(self, spec: Spec) -> dict[str, list[str]]:
        """What sizes of a network stand for, by name: tokens, columns or classes, in their order.

        `start=RUN` takes weights by these names, whatever places they have in two descriptions.
        """
        vocabularies = {
            before + NAMES[spec[name]["kind"]]: [*spec[name]["vocabulary"]]
            for name, before in (("tokens", ""), ("target_tokens", "target "))
            if name in spec
        }
        others = {"columns": [*spec.get("features", ())], "classes": [*spec.get("classes", ())]}
        return {axis: names for axis, names in (vocabularies | others).items() if names}

    def with_one_more(self, spec: Spec, axis: str) -> Spec:
        """The description with one more name at the end of an axis: what grows belongs to it."""
        names = self.axes(spec)[axis]
        more = [*names, max(names, key=len) + "+"]
        if axis == "classes":
            return spec | {"classes": more}
        grown = {  # means and deviations of columns, say
            name: [*values, values[-1]]
            for name, values in spec.items()
            if isinstance(values, list) and len(values) == len(names) and name != "classes"
        }
        grown["shape"] = [len(more)] if spec["shape"] == [len(names)] else spec["shape"]
        if axis == "columns":
            return spec | grown | {"features": more}
        name = "target_tokens" if axis.startswith("target ") else "tokens"
        kind = spec[name]["kind"]  # of byte pairs one more would have to spell something
        tokens = spec[name] | {"vocabulary": more, "merges": []}
        tokens |= {"kind": "words" if kind == "bpe" else kind}
        return spec | grown | {name: tokens}


def register(kind: Kind[Any]) -> None:
    """Make a kind of one's own known by its name."""
    _added[kind.name] = kind


def names() -> tuple[str, ...]:
    """Every kind, those of the package first."""
    return (*ORDER, *(name for name in _added if name not in ORDER))


def named(name: str) -> Kind[Any]:
    """The kind of that name."""
    if name in _added:
        return _added[name]
    if name not in (*ORDER, *ON_REQUEST):
        raise UserError(unknown("kind", name, names()))
    kind: Kind[Any] = import_module(f"everynet.data.kinds.{name}").KIND
    return kind


def writer(name: str) -> Kind[Any]:
    """The kind that writes what a network makes: `film` too, which no data is read as."""
    if name != "film":
        return named(name)
    kind: Kind[Any] = import_module("everynet.data.kinds.film").KIND
    return kind


def of(spec: Spec) -> Kind[Any]:
    """The kind of a description; one that a recipe made by itself may name none."""
    return named(spec["kind"]) if spec.get("kind") in (*names(), *ON_REQUEST) else Kind()


def matching(path: Path) -> Kind[Any] | None:
    """The first kind that a path looks like."""
    shipped = (named(name) for name in ORDER if name not in _added)
    return next((kind for kind in chain(_added.values(), shipped) if kind.matches(path)), None)


def fitting(path: Path) -> list[Kind[Any]]:
    """Every kind that a path looks like, those that it speaks for first."""
    everything = (named(name) for name in (*_added, *names(), *ON_REQUEST))
    one = bool(kind_of_path(path))  # else two files, with a comma between them
    found = [kind for kind in dict.fromkeys(everything) if kind.matches(path)]
    found = [kind for kind in found if one or kind.of_texts]
    return sorted(found, key=lambda kind: not kind.is_sure(path))


def files_in(paths: Sequence[str | Path]) -> list[Path]:
    """Every file that was named, and every file in a folder that was named."""
    if not paths:
        raise UserError("inputs must name at least one file")
    return [regular(path) for path in expanded(paths)]


def expanded(paths: Sequence[str | Path]) -> list[Path]:
    """What was named, with the files of a folder in its place; they need not be any good."""
    from everynet.data.images.folder import walk  # noqa: PLC0415 -- pillow only where it is needed

    found: list[Path] = []
    for given in [Path(path) for path in paths]:  # no map(): a kind of that name hides it here
        inside = [*walk(given)] if kind_of_path(given) == "folder" else [given]
        if not inside:
            raise UserError(f"{shown(given)} holds no file")
        found += inside
    return found
