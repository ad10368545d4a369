"""From files or arrays to predictions of a trained run: one way, for the verb and for Python.

The files of a run folder are read once, its recipe is made once and its network is built once.
"""

from __future__ import annotations

import io
import math
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Spec
from everynet.data.in_memory import part
from everynet.data.kinds import Inputs, Kind, Origin, named, writer
from everynet.data.paths import kind as kind_of_path
from everynet.data.paths import regular
from everynet.data.texts.stream import decode_line, waiting_lines
from everynet.plot.film import Film
from everynet.plot.style import FORMS, drawing, render
from everynet.recipes.recipe import Fitting, Recipe, require_returned
from everynet.recipes.training import Training
from everynet.runs.answer_table import require_new
from everynet.runs.folder import RunFolder, explaining_misfit
from everynet.runs.job import job_class
from everynet.system import files
from everynet.system.errors import NonFinite, UserError
from everynet.system.memory import keep_freed_memory
from everynet.system.seeds import mix
from everynet.system.user_files import line_of_method
from everynet.system.values import typed, verb_arguments, verb_settings
from everynet.system.wording import shown, with_article
from everynet.training.device import Setup, choose

T = TypeVar("T")
AT_ONCE = 256
"""Inputs that a network predicts together."""
LARGE = (
    "the input or the weights are too large: look at both, try --precision fp64, or train again "
    "with a smaller lr"
)
"""Why a prediction is not finite, and what to do."""
STARTS = {".npy": b"\x93NUMPY", ".npz": b"PK", ".png": b"\x89PNG", ".jpg": b"\xff\xd8"}
STARTS |= {".flac": b"fLaC", ".ogg": b"OggS", ".mp3": b"ID3", ".mid": b"MThd"}
"""How files begin: standard input has no name that would tell what it is."""


class UnreadInput(dict[str, Any]):
    """The line of an input that cannot be read: its name and `error`."""


class NonFiniteAnswer(dict[str, Any]):
    """The line of an input whose answer is not finite, which is no JSON: its name and `error`."""


@dataclass
class Predictor:
    """A trained run that predicts and samples."""

    folder: Path
    recipe: Any  # a training or a fitting
    spec: Spec
    setup: Setup = field(default_factory=lambda: choose("auto"))

    @classmethod
    def of(
        cls,
        run: RunFolder,
        recipe: Recipe | None = None,
        device: str = "auto",
        precision: str = "fp32",
    ) -> Predictor:
        """That of a run, if it is of a kind that predicts; `recipe` where its data was moved."""
        recipe = recipe or run.recipe
        if not (hasattr(recipe, "predict") or hasattr(recipe, "sample")):
            instead = "; name a cell of it" if recipe.kind == "experiment" else ""
            raise UserError(
                f"{recipe.name} is {with_article(recipe.kind)}: it neither predicts nor samples"
                + instead
            )
        return cls(run.path, recipe, run.spec, choose(device, precision))

    @cached_property
    def model(self) -> Any:  # noqa: ANN401 -- a network or an estimator
        """The trained network on its device."""
        keep_freed_memory()
        model = job_class(self.recipe).load(self.recipe, self.folder, self.spec)
        if isinstance(model, nn.Module):
            model = model.to(device=self.setup.device, dtype=self.setup.dtype)
        return model

    def kind(self, verb: str) -> Kind[Any]:
        """The kind that reads what the network predicts from and writes what it makes."""
        if verb == "predict" and not hasattr(self.recipe, "predict"):
            raise UserError(f"{self.recipe.name} does not predict: name a cell of it")
        name = (self.recipe.writes if verb == "sample" else "") or self.spec.get("kind", "")
        if not name or not isinstance(name, str):
            raise UserError(f"{self.recipe.name} does not {verb}: its data is of no kind")
        return writer(name) if verb == "sample" else named(name)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Without gradients, in the precision that was chosen; a misfit is one line."""
        with torch.no_grad(), self.setup.autocast(), explaining_misfit(self.recipe, self.folder):
            try:
                yield
            except OverflowError as error:
                said = f"{self.recipe.name} computes a number that is not finite; {LARGE}"
                raise NonFinite(said) from error

    def place(self, inputs: Any) -> Any:  # noqa: ANN401 -- rows of a tensor, or a list
        """Inputs on the device, numbers in the precision of the network's weights."""
        if isinstance(inputs, Tensor):
            dtype = self.setup.dtype if inputs.is_floating_point() else inputs.dtype
            if self.recipe.kind == "fitting":
                return inputs
            return inputs.to(self.setup.device, dtype)
        return [self.place(one) for one in inputs] if isinstance(inputs, list) else inputs

    def predict_inputs(
        self,
        inputs: Sequence[Any] | Tensor,
        origins: Sequence[Origin],
        kind: Kind[Any],
        settings: Mapping[str, Any],
    ) -> Iterator[dict[str, Any]]:
        """The answer for each input; and a warning where that is unlike all it learned."""
        for start in range(0, len(inputs), AT_ONCE):
            some, its = inputs[start : start + AT_ONCE], origins[start : start + AT_ONCE]
            with self.computing():
                warnings = kind.outliers(some, self.spec)
                found = self.recipe.predict(self.model, self.place(some), self.spec, **settings)
                _check_predictions(self.recipe, found, len(some))
            for prediction, warning, origin in zip(found, warnings, its, strict=True):
                with explaining_misfit(self.recipe, self.folder):
                    answer = kind.answer(prediction, self.spec, origin)
                known = {"input": origin.name} | ({"id": origin.id} if origin.id else {})
                yield {**known, **answer} | ({"warning": warning} if warning else {})

    # --------------------------------------------------------------------------- from Python

    def predict(self, inputs: object, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """One prediction for each input: names of files, arrays, a frame or texts."""
        kind = self.kind("predict")
        given = verb_arguments(self.recipe.predict, settings)
        origins, read = self._read(inputs, kind)
        with drawing():
            return list(self.predict_inputs(read, origins, kind, given))

    def _read(self, inputs: object, kind: Kind[Any]) -> tuple[list[Origin], Any]:
        """The inputs, with the origin of each."""
        if isinstance(inputs, str) and kind.of_texts and _is_there(inputs):
            raise UserError(
                f"inputs ({shown(inputs, 60)}) may be a text or the name of a file; write "
                "[text], or Path(name)"
            )
        listed: Any = [inputs] if isinstance(inputs, str | Path) else inputs
        if _are_files(listed, kind):
            with explaining_misfit(self.recipe, self.folder):
                origins, read = kind.read_with_origins([str(one) for one in listed], self.spec)
            for origin in origins:
                if origin.error:
                    raise UserError(origin.error)
            return origins, read
        rows = part(listed, "inputs", advice="")
        with explaining_misfit(self.recipe, self.folder):
            return kind.convert_with_origins(rows, self.spec)

    # --------------------------------------------------------------------- from the command line

    def predict_files(
        self, words: Sequence[str], settings: Mapping[str, Any], out: Out
    ) -> Iterator[dict[str, Any]]:
        """A line for each input in files and folders: the prediction, or `error`.

        What is no plain value is written to a file, and the line names that.
        """
        kind = self.kind("predict")
        given = verb_arguments(self.recipe.predict, settings)
        out.check(kind)
        _ = self.model  # what is wrong with it is said before the inputs are read
        if not words:
            raise UserError("inputs must name at least one file")
        with explaining_misfit(self.recipe, self.folder), drawing(), ExitStack() as stack:
            for pieces in _gather(_read_pieces(words, self.spec, kind, stack), AT_ONCE):
                good = [origin for piece in pieces if not piece.error for origin in piece.origins]
                predictions = self.predict_inputs(_join(pieces), good, kind, given)
                for piece in pieces:
                    for origin in piece.origins:
                        if piece.error:
                            known = {"id": origin.id} if origin.id else {}
                            yield UnreadInput(input=origin.name, **known, error=piece.error)
                        else:
                            yield _check_finite(self._write(next(predictions), kind, origin, out))

    def _write(
        self, line: dict[str, Any], kind: Kind[Any], origin: Origin, out: Out
    ) -> dict[str, Any]:
        """A line with the names of files in the place of what is no plain value."""
        made = [key for key, value in line.items() if hasattr(value, "shape")]
        figures = [key for key, value in line.items() if isinstance(value, Figure)]
        if out.draws and not kind.drawn and not made and not figures:
            raise UserError(
                f"--out ({shown(out.out)}) must end in .csv or .jsonl, because {self.recipe.name} "
                "answers in words and numbers; name a table, or leave --out away and take the lines"
            )
        drawn = kind.overlay(line, self.spec, origin) if out.draws or made else None
        stem = out.stem(str(origin.name)) if made or figures or drawn is not None else ""
        for key in made:
            path = out.place(f"{stem}-{key}")
            line[key] = str(kind.write(line[key][None], self.spec, path)[0])
        if drawn is not None:
            from everynet.data.images.standardize import write_image  # noqa: PLC0415 -- pillow

            path = out.place(f"{stem}-overlay").with_suffix(".png")
            line["overlay"] = str(write_image(drawn, path))
        for key in figures:
            path = out.place(f"{stem}-{key}").with_suffix(out.suffix or ".png")
            if path.suffix[1:] not in FORMS:
                raise UserError(
                    f"--out ({shown(path)}) must be a folder or end in .png, .svg or .pdf, because "
                    f"{key} is a picture"
                )
            files.write(path, render(line[key], path.suffix[1:]))
            line[key] = str(path)
        return line

    # ----------------------------------------------------------------------------------- samples

    def sample_kind(self) -> Kind[Any]:
        """The kind that writes samples, if the recipe generates any."""
        if type(self.recipe).sample in (Training.sample, Fitting.sample):
            raise UserError(f"{self.recipe.name} does not generate samples")
        return self.kind("sample")

    def make_samples(self, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- by recipe
        """What the network makes; `seed` is that of the run where none is given."""
        make: Callable[..., Any] = self.recipe.sample
        left = dict(settings)
        seed = typed("seed", left.pop("seed", self.recipe.seed), int)
        if not 0 <= seed < 2**63:
            raise UserError(f"seed ({seed}) must be at least 0 and below 2^63")
        inputs = {name: left.pop(name) for name in _input_settings(make) if name in left}
        given, model = verb_arguments(make, left), self.model
        given |= {name: self._read_setting(name, value) for name, value in inputs.items()}
        with self.computing():
            return make(model, self.spec, torch.Generator().manual_seed(mix(seed)), **given)

    def _read_setting(self, name: str, value: Any) -> Any:  # noqa: ANN401 -- rows, or a list
        """The inputs that a setting of `sample` stands for, read as those of `predict` are."""
        if isinstance(value, list | tuple) and not value:
            return value  # as where it is left out
        kind = self.kind("read inputs")
        try:
            listed = kind.files(value) if _are_files(value, kind) else ()
            origins, read = (listed, None) if len(listed) > AT_ONCE else self._read(value, kind)
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        if len(origins) > AT_ONCE:
            raise UserError(
                f"{name} ({len(origins):,} inputs) must be at most {AT_ONCE}, because they are "
                "read at once; give fewer"
            )
        return self.place(read)

    def sample(self, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- by recipe
        """What the network makes, in the units of its data: tensors or texts; or a film."""
        kind, made = self.sample_kind(), self.make_samples(settings)
        if isinstance(made, Film):
            return made
        with explaining_misfit(self.recipe, self.folder):
            return kind.to_data_units(made, self.spec)

    def write_samples(self, settings: Mapping[str, Any], out: Out) -> tuple[Any, list[Path]]:
        """What the network makes, and the files it is written to."""
        out.check_new()
        names = _input_settings(self.recipe.sample)
        inputs = {name: _split_names(name, settings[name]) for name in names if name in settings}
        made = self.sample({**settings, **inputs})
        kind = writer("film") if isinstance(made, Film) else self.sample_kind()
        with explaining_misfit(self.recipe, self.folder):
            return made, kind.write(made, self.spec, out.place("samples"))


def _check_predictions(recipe: Recipe, found: Any, inputs: int) -> None:  # noqa: ANN401 -- to check
    """Refuse what is no dict for each input, a mistake in a recipe of one's own."""
    what = f"a list of {inputs} dicts, one for each input"
    require_returned(recipe, "predict", found, (list, tuple), what)
    for one in found:
        require_returned(recipe, "predict", one, dict, what)
    if len(found) != inputs:
        where = line_of_method(type(recipe), "predict")
        raise UserError(f"{where}: predict must return {what}, not {len(found)}")


def _input_settings(method: Callable[..., Any]) -> list[str]:
    """The settings of a verb that stand for inputs, which the kind of data reads."""
    return [name for name, (hint, _) in verb_settings(method).items() if hint == Inputs]


def _split_names(setting: str, text: str) -> list[Path]:
    """The files that a setting on the command line names."""
    names = [text] if os.path.exists(text) else text.split(",")
    if not all(names):
        raise UserError(f"{setting} ({text}) must be files, with a comma between two")
    return [Path(name) for name in names]


def _check_finite(line: dict[str, Any]) -> dict[str, Any]:
    """The line of an input, or one with `error` where a number in it is not finite."""
    for key, value in line.items():
        for number in _numbers(value):
            if not math.isfinite(number):
                error = f"{line['input']}: {key} ({number}) must be finite; {LARGE}"
                return NonFiniteAnswer(input=line["input"], error=error)
    return line


def _numbers(value: object) -> Iterator[float]:
    """Every number in what JSON can hold."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers(one)


def _are_files(inputs: object, kind: Kind[Any]) -> bool:
    """Whether inputs are named: by paths, or by strings where these are no texts."""
    if not isinstance(inputs, list | tuple) or not inputs:
        return False
    if not all(isinstance(one, str | Path) for one in inputs):
        return False
    return not kind.of_texts or any(isinstance(one, Path) for one in inputs)


def _is_there(name: str) -> bool:
    try:
        return bool(kind_of_path(Path(name)))
    except UserError:
        return False


# ------------------------------------------------------------------------------- files, by pieces


@dataclass(frozen=True)
class Piece:
    """What some files hold, with the origin of each input, or why one file cannot be read."""

    origins: Sequence[Origin]
    inputs: Any = None  # rows of a tensor, or a list
    error: str = ""


def _read_pieces(
    words: Sequence[str], spec: Spec, kind: Kind[Any], stack: ExitStack
) -> Iterator[Piece | None]:
    """What each file holds, in order; folders are gone through, `-` stands for standard input.

    None says that the next input has to be waited for.
    """
    if words.count("-") > 1:
        raise UserError("- must stand for standard input once: it can be read only once")
    waiting: list[Path] = []
    for word in words:
        for file in () if word == "-" else _find_files(word, kind):
            if isinstance(file, Path):
                waiting.append(file)
            if isinstance(file, Piece) or len(waiting) == kind.together:
                yield from _read_files(waiting, spec, kind)
                waiting = []
            if isinstance(file, Piece):
                yield file
        if word == "-":
            yield from _read_files(waiting, spec, kind)
            waiting = []
            if kind.reads_lines(spec):
                yield from _read_lines(spec, kind)
            else:
                yield from _read_standard_input(spec, kind, stack)
    yield from _read_files(waiting, spec, kind)


def _find_files(word: str, kind: Kind[Any]) -> Iterator[Path | Piece]:
    """The files that a word stands for."""
    try:
        for path in kind.files([word]):
            try:
                if os.path.isdir(path) and path != Path(word):  # it might lead round in a circle
                    regular(path)
                yield path
            except UserError as error:
                yield Piece([Origin(str(path))], error=str(error))
    except UserError as error:
        yield Piece([Origin(word)], error=str(error))


def _read_files(paths: Sequence[Path], spec: Spec, kind: Kind[Any]) -> Iterator[Piece]:
    """What files hold."""
    origins = [Origin(str(path)) for path in paths]
    return _read_in_halves(paths, origins, lambda some: kind.read_with_origins(some, spec))


def _read_in_halves(
    given: Sequence[T],
    origins: Sequence[Origin],
    read: Callable[[Sequence[T]], tuple[Sequence[Origin], Any]],
) -> Iterator[Piece]:
    """What some inputs hold; where one of several is bad they are read in halves."""
    if not given:
        return
    try:
        found, inputs = read(given)
    except UserError as error:
        if len(given) == 1:
            yield Piece(origins, error=str(error))
            return
        half = len(given) // 2
        yield from _read_in_halves(given[:half], origins[:half], read)
        yield from _read_in_halves(given[half:], origins[half:], read)
    else:
        yield from _part(found, inputs)


def _part(origins: Sequence[Origin], inputs: Any) -> Iterator[Piece]:  # noqa: ANN401 -- by kind
    """What some inputs hold; of those that cannot be read only why."""
    if not any(origin.error for origin in origins):
        yield Piece(origins, inputs)
        return
    start = 0
    for error, group in groupby(origins, key=lambda origin: origin.error):
        some = [*group]
        end = start + len(some)
        yield Piece(some, error=error) if error else Piece(some, inputs[start:end])
        start = end


def _read_lines(spec: Spec, kind: Kind[Any]) -> Iterator[Piece | None]:
    """The lines of standard input as they come."""

    def read(some: Sequence[tuple[int, bytes]]) -> tuple[list[Origin], Any]:
        texts = {number: decode_line(number, content) for number, content in some}
        for number, text in texts.items():
            if not text.strip() and not kind.skips_empty_lines:
                raise UserError(
                    f"standard input: line {number} is empty; fill it in or leave it out"
                )
        filled = {number: text for number, text in texts.items() if text.strip()}
        origins = [Origin(f"-:{number}") for number in filled]
        return origins, kind.convert([*filled.values()], spec) if filled else []

    yield None
    none = True
    for lines in waiting_lines(open_standard_input(), AT_ONCE):
        origins = [Origin(f"-:{number}") for number, _ in lines]
        for piece in _read_in_halves(lines, origins, read):
            if piece.origins:
                none = False
                yield piece
        yield None
    if none:
        yield Piece([Origin("-")], error="standard input must hold a line that is not empty")


def open_standard_input() -> io.BufferedIOBase:
    """The bytes of standard input, which a process may be started without."""
    if sys.stdin is None:
        raise UserError("- stands for standard input, which is closed; name a file, or open it")
    found = sys.stdin.buffer
    assert isinstance(found, io.BufferedIOBase)
    return found


def _read_standard_input(spec: Spec, kind: Kind[Any], stack: ExitStack) -> Iterator[Piece]:
    """What comes on standard input, as a file that is there until all is predicted and drawn."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    content = open_standard_input().read()
    found = (end for end, start in STARTS.items() if content.startswith(start))
    path = Path(folder) / f"input{next(found, kind.suffix)}"
    path.write_bytes(content)
    for piece in _read_files([path], spec, kind):
        names = [str(origin.name).replace(str(path), "-") for origin in piece.origins]
        pairs = zip(piece.origins, names, strict=True)
        error = piece.error.replace(str(path), "standard input")
        yield Piece([replace(origin, name=name) for origin, name in pairs], piece.inputs, error)


def _gather(found: Iterable[Piece | None], least: int) -> Iterator[list[Piece]]:
    """Pieces, as many as hold `least` inputs together, or as there are before one that waits."""
    waiting: list[Piece] = []
    alone = True
    for piece in found:
        waiting += [piece] if piece else []
        enough = sum(len(each.origins) for each in waiting if not each.error) >= least
        if waiting and (enough or piece is None):
            yield waiting
            waiting, alone = [], False
    if alone and len(waiting) == 1 and waiting[0].error:
        raise UserError(waiting[0].error)
    if waiting:
        yield waiting


def _join(found: Sequence[Piece]) -> Any:  # noqa: ANN401 -- rows of a tensor, or a list
    """The inputs of all pieces that have any, one after another."""
    inputs = [piece.inputs for piece in found if not piece.error]
    if len(inputs) == 1 or not inputs:
        return inputs[0] if inputs else []
    if isinstance(inputs[0], Tensor):
        return torch.cat(inputs)
    return [one for each in inputs for one in each]


@dataclass
class Out:
    """Where what a run makes is written."""

    out: str | None
    recipe: str
    draws: bool = False
    """Whether pictures are wanted there."""
    _made: list[Path] = field(default_factory=list)
    _stems: dict[str, str] = field(default_factory=dict)

    @property
    def suffix(self) -> str:
        """How the file that was named ends; empty where it is a folder or none was."""
        return "" if os.path.isdir(self.out or "") else Path(self.out or "").suffix

    def check_new(self) -> None:
        """Refuse a file that is there, before anything else."""
        if self.out and self.suffix:
            require_new(Path(self.out))

    def check(self, kind: Kind[Any]) -> None:
        """Refuse a file that nothing can be written to, or that is there, before anything else."""
        if not self.draws or not self.suffix:
            return
        self.check_new()
        if kind.drawn and self.suffix != ".png":
            raise UserError(
                f"--out ({shown(self.out)}) must be a folder or end in .png, because pictures are "
                "made, or in .csv or .jsonl for a table"
            )

    def stem(self, name: str) -> str:
        """What files made of an input are called: its own name, told apart from its like."""
        if name not in self._stems:
            file, _, row = name.rpartition(":")  # of a file that holds many
            whole = file if row.isdecimal() else name
            own = "stdin" if whole == "-" else Path(whole).stem
            own += f"-{row}" if row.isdecimal() else ""
            plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in own)
            taken, number, found = set(self._stems.values()), 2, plain
            while found in taken:
                found, number = f"{plain}-{number}", number + 1
            self._stems[name] = found
        return self._stems[name]

    def place(self, name: str) -> Path:
        """Where something that was made is to be written: --out, or a folder of its own."""
        if self.out and self.suffix:
            files.make_folder(Path(self.out).absolute().parent)
            first = not self._made
            self._made.append(Path(self.out))
            return Path(self.out) if first else Path(self.out).with_name(f"{name}")
        if not self._made:
            folder = Path(self.out or f"{self.recipe}-{secrets.token_hex(3)}")
            files.make_folder(folder.absolute())
            self._made.append(folder)
        return self._made[0] / name
