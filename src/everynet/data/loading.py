"""From a name or a path to `Data`: find the samples, and let their kind make numbers of them."""

from __future__ import annotations

import hashlib
import inspect
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self, get_origin

import torch
from torch import Tensor

from everynet.data import kinds, sets
from everynet.data.dataset import Data, Spec
from everynet.data.download import store
from everynet.data.in_memory import PREFIX, Given, held
from everynet.data.kinds import Kind
from everynet.data.overlap import check_apart
from everynet.data.paths import kind as kind_of_path
from everynet.data.report import Report
from everynet.data.split import TEST_PART, all_parts
from everynet.data.streamed import streamed
from everynet.system.errors import UserError
from everynet.system.sources import note
from everynet.system.values import convert, verb_settings
from everynet.system.wording import nearest, shown

FEW_FILES, FEW_BYTES = 1000, 2**26
"""Files, or bytes of one, that `check` looks at once more, as another kind."""


def load(
    data: str | Path,
    *,
    kind: str | tuple[str, ...],
    batch_size: int,
    seed: int = 0,
    holdout: bool = True,
    **options: Any,  # noqa: ANN401 -- those of the kind's `find` and `data`
) -> Data:
    """The three splits of a known dataset (`digits`, `strokes:20000`) or of the user's own files.

    `kind` says what the recipe can learn from; where it can take several, what the data looks like
    decides. `holdout=False` also trains on the rows that would choose the weights, of a set that
    ships with its test. `seed` decides the order of the batches, never the split.
    """
    if isinstance(data, Like):
        made = _load_like(data, (kind,) if isinstance(kind, str) else kind, options, batch_size)
        if made is not None:
            return made
    chosen, found = _found(data, kind, options)
    if not holdout:
        found = _all_but_test(found)
    made = chosen.data(found, batch_size=batch_size, seed=seed, **_taken(chosen.data, options))
    made = replace(made, chooses=holdout, own=is_own(data))
    if not str(data).startswith(PREFIX):
        return made
    given = held(str(data))
    made = replace(made, notes=(*made.notes, *given.notes))
    return streamed(made, chosen, given.stream) if given.stream else made


def is_own(data: str | Path) -> bool:
    """Whether a setting names the user's own files: no set is known by that name."""
    return _known(data) is None


def samples(data: str | Path, *, kind: str | tuple[str, ...], **options: Any) -> Any:  # noqa: ANN401
    """The samples of a known dataset or of a path, before they are made into numbers."""
    if isinstance(data, Like) and _known(data) is None:
        chosen = kinds.named(data.spec["kind"])
        if chosen.name in kind and chosen.matches_like(Path(data), data.spec):
            return chosen.find(Path(data), like=data.spec, **_taken(chosen.find, options))
    return _found(data, kind, options)[1]


def _found(
    data: str | Path, kind: str | tuple[str, ...], options: Mapping[str, Any]
) -> tuple[Kind[Any], Any]:
    """The kind that was chosen and the samples, as they are."""
    wanted = [kinds.named(name) for name in ((kind,) if isinstance(kind, str) else kind)]
    name, _, count = str(data).partition(":")
    known = _known(data)
    if known:
        chosen = next((kind for kind in wanted if kind.name == known.kind), None)
        if chosen is None:
            raise _refused(data, wanted, known.kind)
        _check_options(chosen, data, options)
        return chosen, _noted(known.make(count) if known.make else store.samples(known))
    if name == "memory":
        return _in_memory(held(str(data)), wanted, options)
    path = Path(data)
    there = str(data) and all(kind_of_path(Path(part)) for part in str(data).split(","))
    named = str(data) and (os.sep in str(data) or path.suffix or kind_of_path(path))
    if not there and not named:
        raise _unknown(data)
    if not there and not kind_of_path(path):
        gone = next(part for part in str(data).split(",") if not kind_of_path(Path(part)))
        raise UserError(f"data ({shown(gone)}) must be a file or a folder, but is not there")
    chosen = next((kind for kind in wanted if kind.matches(path)), None)
    like = kinds.matching(path) if chosen is None and there else None
    if like is not None and not _means(path, wanted[0], like, options):
        raise _refused(path, wanted, like.name)
    chosen = chosen or wanted[0]
    _check_options(chosen, data, options)
    return chosen, _noted(chosen.find(path, **_taken(chosen.find, options)))


def _in_memory(
    given: Given, wanted: list[Kind[Any]], options: Mapping[str, Any]
) -> tuple[Kind[Any], Any]:
    """The first kind that takes what the caller has in memory, and the samples."""
    for kind in wanted:
        if not kind.in_memory:
            continue
        found = kind.from_memory(given, **_taken(kind.from_memory, options))
        if found is not None:
            _check_options(kind, given.short, options)
            return kind, _noted(_with_own_parts(kind, found, given))
    ways = ", or ".join(kind.in_memory for kind in wanted if kind.in_memory)
    if not ways:
        raise UserError(f"data ({given}) must be in files: {wanted[0].about}")
    raise UserError(f"data ({given}) must be {ways}")


def _with_own_parts(kind: Kind[Any], found: Any, given: Given) -> Any:  # noqa: ANN401 -- samples
    """The samples, which must be in the parts that the caller made, if any, and these apart."""
    if given.own is None:
        return found
    if not kind.own_parts:
        raise UserError(
            f"data ({given}) must be in one part, because {kind.name} data makes its own"
        )
    if given.apart:
        check_apart(given.short, found.parts, given.own)
    both = f"{found.digest} {given.digest}"  # that of texts does not tell of their parts
    return replace(found, digest=hashlib.sha256(both.encode()).hexdigest())


def _known(data: str | Path) -> sets.Known | None:
    """The known set of that name; a number behind it is for those that are generated."""
    name, _, count = str(data).partition(":")
    known = sets.everything().get(name)
    return known if known and (known.make or not count) else None


def _noted(found: Any) -> Any:  # noqa: ANN401 -- samples of any kind
    """The samples; the run that reads them writes down what they were."""
    note(found.name, found.digest)
    return found


def _refused(data: object, wanted: list[Kind[Any]], like: str) -> UserError:
    about = ", or ".join(kind.about for kind in wanted)
    return UserError(f"data ({shown(data)}) must be {about}; it looks like {like} data")


def _taken(function: Any, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 -- a method
    """Those options that a method of a kind takes."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in known}


def _check_options(kind: Kind[Any], data: object, options: Mapping[str, Any]) -> None:
    """Refuse an option that was set and means nothing for this kind."""
    known = {*inspect.signature(kind.find).parameters, *inspect.signature(kind.data).parameters}
    for name, value in options.items():
        if value and name not in known:
            raise UserError(
                f"{name} ({shown(value, 60)}) must be left out, because data ({shown(data)}) is "
                f"{kind.name} data, which has no {name}"
            )


# ------------------------------------------------------------------------------------- holdout


def _all_but_test(samples: Any) -> Any:  # noqa: ANN401 -- samples of any kind
    """All rows but those of the test for training; the rows held out are trained on too."""
    if not getattr(samples, "published", False):
        raise UserError(
            f"holdout (false) must be true for {samples.name}, because its test part is our own "
            "choice; only a set with a published test can be trained on whole"
        )
    train = _joined(samples.parts["train"], samples.parts["valid"])
    split = (
        f"{samples.split}; holdout=false: the rows for validation are trained on as well, and the "
        "last weights are kept"
    )
    return replace(samples, parts={**samples.parts, "train": train}, split=split)


def _joined(first: Any, second: Any) -> Any:  # noqa: ANN401 -- parts of any kind
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    if isinstance(first, tuple):
        return tuple(_joined(*pair) for pair in zip(first, second, strict=True))
    return first + second


# ------------------------------------------------------------------------------------ evaluation


class Like(str):
    """A `data` setting whose samples are treated as the description of a run says.

    `load` gives them as test set only, unless they are what the run learned from, by its digest.
    """

    spec: Spec
    digest: str

    def __new__(cls, data: str, spec: Spec, digest: str) -> Self:
        """The name or path, with what the run knows of its data."""
        made = super().__new__(cls, data)
        made.spec, made.digest = spec, digest
        return made


def _load_like(
    data: Like, wanted: tuple[str, ...], options: Mapping[str, Any], batch_size: int
) -> Data | None:
    """The test set of data that is not that of the run, treated as that was; else None."""
    chosen = kinds.named(data.spec.get("kind", wanted[0]))
    known, memory = _known(data), data.startswith(PREFIX)
    there = known or memory or all(kind_of_path(Path(part)) for part in data.split(","))
    looks = known.kind if known else chosen.name if memory else _looks_like(data, chosen, options)
    if there and looks != chosen.name:
        raise _refused(data, [chosen], looks)
    try:
        found = _found(data, wanted, options)[1]
        if found.digest == data.digest:
            return None
    except UserError:
        if known or not there:
            raise
        # too little to learn from may be enough to evaluate on
    if not all("like" in inspect.signature(f).parameters for f in (chosen.find, chosen.data)):
        raise UserError(
            f"data ({shown(data)}) must be left out: {chosen.name} data has no way to be treated "
            "like that of a run"
        )
    if memory:
        like = _taken(chosen.from_memory, {**options, "like": data.spec})
        found = chosen.from_memory(held(str(data)).test, **like) if "like" in like else None
        if found is None:
            ways = chosen.in_memory or f"in files: {chosen.about}"
            raise UserError(f"data ({held(str(data))}) must be {ways}")
    elif known is None:
        found = chosen.find(Path(data), like=data.spec, **_taken(chosen.find, options))
    elif "test" in found.parts:  # a text is divided by its own kind
        parts = all_parts(found.parts["test"])
        found = replace(found, parts=parts, test_only=True, split=TEST_PART)
    treat = _taken(chosen.data, options) | {"batch_size": 1, "like": data.spec}
    made: Data = chosen.data(found, **treat)
    return replace(made, batch_size=batch_size, test_only=True, own=known is None)


def _looks_like(data: Like, kind: Kind[Any], options: Mapping[str, Any]) -> str:
    """The kind that a path looks like: this one, where it may be or nothing can be told."""
    path = Path(data)
    other = None if kind.matches_like(path, data.spec) else kinds.matching(path)
    return other.name if other and not _means(path, kind, other, options) else kind.name


def _means(path: Path, kind: Kind[Any], other: Kind[Any], options: Mapping[str, Any]) -> bool:
    """Whether an option was set for a file that this kind has and the one it looks like has not."""
    alone = {*_taken(kind.find, options)} - {*_taken(other.find, options)}
    return kind_of_path(path) == "file" and any(options[name] for name in alone)


class Look(NamedTuple):
    """What data looks like, before all of it is read."""

    kinds: Sequence[str]
    """The kinds that it may be read as, the likeliest first."""
    task: str = ""
    """What is learned from it; empty where only a reader of all of it could tell."""
    classes: int = 0


def recognise(data: str, kind: str = "", **options: Any) -> Look:  # noqa: ANN401 -- of a kind
    """What a known name or a path looks like: `list data=PATH` finds recipes for it.

    Files are read as a whole only where an option such as `target=` says how, and of arrays.
    """
    path, known = Path(data), _known(data)
    if known is None and not (data and _is_there(path)):
        raise _unknown(data)
    if known is None:
        _refuse_pipes(path)
    named = kind or (known.kind if known else "")
    found = [kinds.named(named)] if named else kinds.fitting(path)
    if not found:
        raise _looks_like_nothing(path)
    if kind_of_path(path) == "folder":  # what asks for more of a folder comes first
        found = found[:1]
    first = found[0]
    if options or (first.name == "table" and (known or path.suffix.lower() in (".npy", ".npz"))):
        read = samples(data, kind=first.name, **{**options, **_typed(first.find, options)})
        return Look([first.name], read.task, len(getattr(read, "classes", ())))
    return Look([kind.name for kind in found], "" if known else first.guess_task(path))


def _is_there(path: Path) -> bool:
    """Whether a path is there, or both of two with a comma between them."""
    return bool(kind_of_path(path)) or all(map(kind_of_path, map(Path, str(path).split(","))))


def _refuse_pipes(path: Path) -> None:
    """Refuse what is neither file nor folder: to look at its beginning might never end."""
    if kind_of_path(path) == "something else":
        raise UserError(f"{shown(path)} must be a folder or a file, but is something else")


def _unknown(data: str | Path) -> UserError:
    name = str(data).partition(":")[0]
    return UserError(
        f"data ({shown(data)}) must be a known name or a path that is there"
        + nearest(name, sets.everything())
    )


def _looks_like_nothing(path: Path) -> UserError:
    known = ", ".join(kinds.names())
    return UserError(f"{shown(path)} looks like no kind of data; name one with kind=, of {known}")


def check(path: str | Path, kind: str = "", **options: Any) -> Any:  # noqa: ANN401 -- of a kind
    """What is in the user's files and what is wrong with them, as a report that prints itself.

    Options of the kind may be text, as on the command line. Where some say how numbers are
    made of it (`tokens=`), they are made, and the report says what came of it.
    """
    path = Path(path)
    if not _is_there(path):
        raise UserError(f"{shown(path)} must be a folder or a file that is there")
    _refuse_pipes(path)
    found = kinds.named(kind) if kind else kinds.matching(path)
    asked = map(kinds.named, kinds.ON_REQUEST if found is None else ())
    found = found or next((kind for kind in asked if kind.matches(path)), None)
    if found is None:
        raise _looks_like_nothing(path)
    _check_options(found, path, options)
    taken, more = (_typed(method, options) for method in (found.find, found.data))
    report = found.check(path, **taken)
    report.others = [] if kind else [*_others(path, found, report, options)]
    if more and report.good:
        made = found.data(found.find(path, **taken), **{"batch_size": 1} | more)
        report.facts["as numbers"] = found.line(made.spec)
    return report


def _others(
    path: Path, found: Kind[Any], report: Report, options: Mapping[str, Any]
) -> Iterator[str]:
    """As what else files could be read, and how to ask for it.

    That is looked at where they are not good as the kind they were taken for, or where their
    beginning speaks for another; and is not looked at, but said, where they are large.
    """
    for other in kinds.fitting(path):
        known = inspect.signature(other.find).parameters
        fits = all(name in known for name, value in options.items() if value)
        if other.name == found.name or not fits or (report.good and not other.is_sure(path)):
            continue
        command = shlex.join(["everynet", "data", "check", str(path), f"kind={other.name}"])
        command += "".join(f" {shlex.quote(f'{name}={value}')}" for name, value in options.items())
        what = f"as {other.about.partition(':')[0]}"
        if not _is_small(path):
            yield f"{what}, which was not looked at: {shown(command)}"
        elif other.check(path, **_typed(other.find, options)).good:
            yield f"{what}: good, {shown(command)}"


def _is_small(path: Path) -> bool:
    """Whether files can be looked at once more in a moment."""
    if kind_of_path(path) == "folder":
        from everynet.data.images.folder import walk  # noqa: PLC0415 -- pillow where it is needed

        return sum(1 for _ in islice(walk(path), FEW_FILES + 1)) <= FEW_FILES
    files = [path] if kind_of_path(path) else map(Path, str(path).split(","))
    return sum(file.stat().st_size for file in files) <= FEW_BYTES


def _typed(method: Any, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 -- a method
    """Those options that a method of a kind takes, in its types."""
    types = verb_settings(method)
    taken = _taken(method, options)
    for name, value in taken.items():
        plain = types[name][0] in (str, int, float, bool) or get_origin(types[name][0]) is tuple
        if isinstance(value, str) and not plain:
            raise UserError(f"{name} ({shown(value, 60)}) must be left out: it is for recipes")
    return {
        name: convert(name, value, types[name][0]) if isinstance(value, str) else value
        for name, value in taken.items()
    }
