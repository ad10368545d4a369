"""Checkpoints: safetensors, JSON and a manifest with the SHA-256 of each file and of itself.

    checkpoints/STEP/         all that changes while a run goes on, so that it can go on from there
    checkpoints/best-STEP/    the weights of the best evaluation, no more

Weights and moments are found again by the names of their parameters and copied into tensors
that already have the right strides, so that what is restored computes the very same bits.
Whoever reads learns what is damaged; only `restore_newest` puts a damaged folder aside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from everynet.recipes.state import State
from everynet.runs.encoding import VALUES, decode, encode
from everynet.runs.optimizer_state import FLOATS, check_fits, misfit, remembered
from everynet.system import files
from everynet.system.errors import Damaged, Missing, NoCheckpoint, UserError
from everynet.system.manifest import NAME as MANIFEST
from everynet.system.manifest import canonical, digest, opened, parsed, written

MODEL, STATE, TENSORS = "model.safetensors", "state.json", "state.safetensors"
MIB = 1 << 20
WEIGHTS = 4 << 30  # bytes of weights whose network is not known
LOOKS = 100  # looks at the checkpoints of a run that is writing new ones meanwhile

T = TypeVar("T")


class DamagedCheckpoint(Damaged):
    """A checkpoint whose bytes are not those that were written."""


@dataclass
class Best:
    """What a checkpoint holds besides the state: the best evaluation and the log's length."""

    best_step: int = -1
    best_value: float = 0.0
    log_length: int = 0
    log_sha256: str = digest(b"")


# ----------------------------------------------------------------------------- folders of bytes


Manifests: TypeAlias = dict[Path, dict[str, str]]
"""The SHA-256 of each file of a checkpoint, by its folder."""


def write_bundle(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write files and their manifest as one folder, whole or not at all."""
    digests = {name: digest(content) for name, content in contents.items()}
    files.write_folder(path, {**contents, MANIFEST: written(digests)})


def read_bundle(
    path: Path,
    names: Iterable[str] | None = None,
    most: Mapping[str, int] | None = None,
    manifests: Manifests | None = None,
) -> dict[str, bytes]:
    """The files of a folder (or those of `names`), every byte checked against the manifest.

    `most` says how many bytes each may have; `manifests` holds those that were read before.
    """
    manifests = {} if manifests is None else manifests
    limits = {MODEL: WEIGHTS, TENSORS: WEIGHTS, **(most or {})}
    with _damage(path):
        if path not in manifests:
            manifests[path] = opened(files.read(path / MANIFEST), path / MANIFEST)
        digests = manifests[path]
        if odd := [name for name in digests if name not in (MODEL, STATE, TENSORS)]:
            raise DamagedCheckpoint(f"{path} is damaged: {odd[0][:40]!r} is none of its files")
        if lost := [name for name in names or () if name not in digests]:
            raise DamagedCheckpoint(f"{path} is damaged: it must hold {lost[0]}")
        wanted = {name: digests[name] for name in (digests if names is None else names)}
        contents = {name: files.read(path / name, limits.get(name, files.MOST)) for name in wanted}
    for name, expected in wanted.items():
        if digest(contents[name]) != expected:
            raise DamagedCheckpoint(f"{path / name} is damaged: its checksum does not match")
    return contents


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Whatever a checkpoint of another form leads to within is one line that says so."""
    try:
        yield
    except DamagedCheckpoint:
        raise
    except Missing as error:
        raise DamagedCheckpoint(f"{path} is damaged: {error}") from error
    except Damaged as error:
        raise DamagedCheckpoint(str(error)) from error
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        raise DamagedCheckpoint(f"{path} is damaged: {line:.200}") from error


# -------------------------------------------------------------------------------------- tensors


def _module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; tied ones under their first name only."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in module.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor to be saved: register it as a buffer")
        if id(value) not in seen:
            seen.add(id(value))
            tensors[name] = value
    return tensors


def _saved(tensors: Mapping[str, Tensor]) -> bytes:
    """Bytes of tensors, plain and apart: safetensors takes no strides and no shared memory."""
    plain = {
        name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()
    }
    return save_tensors(plain)


def _copy(wanted: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Fill tensors with the saved ones of the same names, which were found to fit."""
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(saved[name])


def _size(tensors: Iterable[Tensor]) -> int:
    """The bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _room(tensors: Mapping[str, Tensor]) -> int:
    """The most bytes that a file of such tensors can have, names and all."""
    return 2 * _size(tensors.values()) + MIB + 1024 * len(tensors)


def _parameter_names(state: State) -> dict[int, str]:
    names: dict[int, str] = {}
    for part, module in (("extra", state.extra), ("model", state.model)):
        names |= {id(p): f"{part}/{name}" for name, p in module.named_parameters()}
    for key, optimizer in state.optimizers.items():
        if any(id(p) not in names for group in optimizer.param_groups for p in group["params"]):
            raise TypeError(f"optimiser {key} must be given parameters of the model or of extra")
    return names


# ------------------------------------------------------------------------------------- training


def _others(state: State, deployed: nn.Module) -> dict[str, Tensor]:
    """The tensors of a state that the deployed network does not hold: each is stored once."""
    held = {id(tensor) for tensor in _module_tensors(deployed).values()}
    tensors: dict[str, Tensor] = {}
    for part, module in (("extra", state.extra), ("model", state.model)):
        for name, tensor in _module_tensors(module).items():
            if id(tensor) not in held:
                held.add(id(tensor))
                tensors[f"{part}/{name}"] = tensor
    return tensors


def check_deployed(model: nn.Module, deployed: nn.Module) -> None:
    """Refuse a deployed network whose weights would not fit into the recipe's model."""
    shapes = [{n: t.shape for n, t in _module_tensors(m).items()} for m in (model, deployed)]
    if odd := sorted({*shapes[0]} ^ {*shapes[1]}):
        why = f"{odd[0]} is in one only"
    elif odd := [name for name, shape in shapes[0].items() if shapes[1][name] != shape]:
        why = f"{odd[0]} is {list(shapes[0][odd[0]])} there and {list(shapes[1][odd[0]])} here"
    else:
        return
    raise UserError(
        f"deployed() must give a network with the tensors of model(), because `load` puts its "
        f"weights there: {why}"
    )


def save(path: Path, state: State, deployed: nn.Module, progress: Best) -> None:
    """Write all that changes while a Training runs."""
    tensors = _others(state, deployed)
    names = _parameter_names(state)
    memory: dict[str, dict[str, Any]] = {}
    for key, optimizer in state.optimizers.items():
        memory[key] = {
            names[id(p)]: {
                what: encode(
                    value,
                    f"{what} of optimiser {key}",
                    f"optimizer/{key}/{names[id(p)]}/{what}",
                    tensors,
                )
                for what, value in optimizer.state[p].items()
            }
            for group in optimizer.param_groups
            for p in group["params"]
            if p in optimizer.state
        }
    about = {"step": state.step, "progress": vars(progress), "optimizers": memory}
    write_bundle(
        path,
        {
            MODEL: _saved(_module_tensors(deployed)),
            TENSORS: _saved(tensors),
            STATE: canonical(about),
        },
    )


def save_model(path: Path, model: nn.Module) -> None:
    """Write the weights alone."""
    write_bundle(path, {MODEL: _saved(_module_tensors(model))})


def restore(path: Path, state: State, deployed: nn.Module) -> Best:
    """Put a checkpoint into a state that was begun with the same recipe."""
    return _restore(_whole(path, state, deployed), state, deployed)


def restore_newest(folder: Path, state: State, deployed: nn.Module) -> tuple[Path, Best, str]:
    """Go on from the newest checkpoint that can be trusted; says what was wrong with newer ones.

    A damaged one is put out of the way. One that cannot be read may be whole: it ends the attempt.
    """
    path, saved, problem = _first_good(
        folder, _newest_first(folder), lambda path: _whole(path, state, deployed), aside=True
    )
    return path, _restore(saved, state, deployed), problem


@dataclass(frozen=True)
class _Saved:
    """A checkpoint of a Training, read and taken apart."""

    step: int
    progress: Best
    memory: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """What each optimiser remembers of each parameter, as plain JSON."""
    model: Mapping[str, Tensor]
    others: Mapping[str, Tensor]
    moments: Mapping[str, Tensor]


def _whole(path: Path, state: State, deployed: nn.Module) -> _Saved:
    """All of a checkpoint of a Training; no file may be larger than the state could make it."""
    held = [*_module_tensors(state.model).values(), *_module_tensors(state.extra).values()]
    most = {MODEL: _room(_module_tensors(deployed)), TENSORS: 256 * _size(held) + 64 * MIB}
    contents = read_bundle(path, most=most)
    if not {MODEL, TENSORS, STATE} <= {*contents}:
        raise DamagedCheckpoint(f"{path} is damaged: it must hold {MODEL}, {TENSORS} and {STATE}")
    about = _parse_state(path, contents[STATE])
    tensors = _tensors(path, contents[TENSORS])
    moments = {name: t for name, t in tensors.items() if name.startswith("optimizer/")}
    with _damage(path):
        if type(about["step"]) is not int or str(about["step"]) != path.name:
            raise DamagedCheckpoint(f"{path} is damaged: it holds step {about['step']!s:.40}")
        memory = about["optimizers"]
        if not all(isinstance(one, dict) for part in memory.values() for one in part.values()):
            raise TypeError("what an optimiser remembers must be named")
        return _Saved(
            step=int(path.name),
            progress=_progress(about["progress"]),
            memory=memory,
            model=_finite_ones(path, _tensors(path, contents[MODEL])),
            others={name: t for name, t in tensors.items() if name not in moments},
            moments=moments,
        )


def _parse_state(path: Path, content: bytes) -> dict[str, Any]:
    """What state.json holds."""
    with _damage(path):
        about = parsed(content, path / STATE)
        if not isinstance(about, dict):
            raise TypeError(f"{STATE} must hold an object")
        return about


def _progress(stored: Mapping[str, Any]) -> Best:
    """The best evaluation and the mark of the log, if they are what we write."""
    best = Best(**stored)
    for part in fields(Best):
        kind = type(getattr(Best(), part.name))
        if type(getattr(best, part.name)) not in ((int, float) if kind is float else (kind,)):
            raise TypeError(f"{part.name} must be {kind.__name__}")
    if best.log_length < 0:
        raise ValueError("log_length must not be negative")
    return best


def _restore(saved: _Saved, state: State, deployed: nn.Module) -> Best:
    """Put what was saved into a state; nothing is changed before all of it is found to fit."""
    others = _others(state, deployed)
    check_fits(_module_tensors(deployed), saved.model)
    check_fits(others, saved.others)
    if odd := sorted({*saved.memory} ^ {*state.optimizers}):
        raise misfit(f"the optimiser {odd[0]:.40} is in one only")
    names, used = _parameter_names(state), set[str]()
    memories: dict[str, dict[Tensor, dict[str, Any]]] = {}
    for key, optimizer in state.optimizers.items():
        where = f"optimizer/{key}"
        with _damage(Path(where)):
            memories[key], taken = remembered(
                where, optimizer, names, saved.memory[key], saved.moments
            )
        used |= taken
    if odd := sorted({*saved.moments} - used):
        raise misfit(f"{odd[0]} is in one only")
    _copy(_module_tensors(deployed), saved.model)
    _copy(others, saved.others)
    for key, optimizer in state.optimizers.items():
        optimizer.state.clear()
        optimizer.state.update(memories[key])
    state.step = saved.step
    return saved.progress


def _tensors(path: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors of a file of a checkpoint."""
    try:
        with _damage(path):
            return load_tensors(content)
    except (SafetensorError, RuntimeError) as error:
        raise DamagedCheckpoint(f"{path} is damaged: {error}") from error


def _finite_ones(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of which each is a number: no run writes others."""
    for name, tensor in tensors.items():
        if tensor.dtype in FLOATS and not tensor.isfinite().all():
            raise DamagedCheckpoint(
                f"{path} is damaged: {name} must be made of finite numbers, and is not"
            )
    return tensors


def _weights(path: Path, model: nn.Module, manifests: Manifests | None = None) -> dict[str, Tensor]:
    """The weights of a checkpoint; their file may not be larger than the network could make it."""
    room = {MODEL: _room(_module_tensors(model))}
    content = read_bundle(path, (MODEL,), room, manifests)[MODEL]
    return _finite_ones(path, _tensors(path, content))


def restore_model(path: Path, model: nn.Module) -> None:
    """Put the deployed weights of a checkpoint into a network."""
    _copy(_module_tensors(model), _fitting(path, model))


def check_model(path: Path, model: nn.Module) -> None:
    """Refuse the weights of a checkpoint that could not be put into a network."""
    _fitting(path, model)


def _fitting(path: Path, model: nn.Module) -> dict[str, Tensor]:
    weights = _weights(path, model)
    check_fits(_module_tensors(model), weights, exact=False)
    return weights


def kept_weights(folder: Path) -> bytes:
    """The file of the weights that a run keeps."""
    found = _settled(folder, lambda path: read_bundle(path, (MODEL,))[MODEL])
    return found[1]


def weights_in(path: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        return load_tensors(content)
    except (SafetensorError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"{path} is no safetensors file, or is damaged: {error}") from error


def load_kept(folder: Path, model: nn.Module) -> str:
    """Put the weights that a run keeps into a network; says what was damaged and passed over."""
    manifests: Manifests = {}
    path, weights, problem = _settled(folder, lambda p: _weights(p, model, manifests), manifests)
    wanted = _module_tensors(model)
    check_fits(wanted, weights, exact=False)
    _copy(wanted, weights)
    return f"{problem}; the weights of {path} are taken instead" if problem else ""


def _settled(
    folder: Path, read: Callable[[Path], T], manifests: Manifests | None = None
) -> tuple[Path, T, str]:
    """The weights that a run keeps, also while it is writing: then what was there has gone."""
    for _ in range(LOOKS):
        before = files.names(folder / "checkpoints")
        try:
            found = _first_good(folder, _candidates(folder, manifests), read)
        except NoCheckpoint:
            if files.names(folder / "checkpoints") == before:
                raise
        else:
            if not found[2] or files.names(folder / "checkpoints") == before:
                return found
        (manifests or {}).clear()  # what was read may have gone since
    return _first_good(folder, _candidates(folder, manifests), read)


def _newest_first(folder: Path) -> Iterator[Path]:
    return (path_of(folder, step) for step in reversed(steps(folder)))


def _candidates(folder: Path, manifests: Manifests | None = None) -> Iterator[Path]:
    """Where the weights of a run may be found, the best of the newest checkpoint first."""
    for step in reversed(steps(folder)):
        path = path_of(folder, step)
        try:
            best = progress_of(path, manifests).best_step
        except UserError:
            yield path / STATE  # which cannot be read: the error of reading it says why
            continue
        if best >= 0:
            yield best_path(folder, best)
        yield path


def _first_good(
    folder: Path, paths: Iterable[Path], read: Callable[[Path], T], *, aside: bool = False
) -> tuple[Path, T, str]:
    """The first of the paths that can be read, what was read, and what was wrong before it.

    With `aside` a damaged one gets another name, and any other trouble with one ends the search.
    """
    problem = ""
    for path in paths:
        try:
            return path, read(path), problem
        except UserError as error:
            if aside and not isinstance(error, DamagedCheckpoint):
                raise
            problem = problem or str(error)
            if aside:
                put_aside(path)
    raise NoCheckpoint(
        f"{folder} has no valid checkpoint left{problem and f': {problem}'}; start it again"
    )


def steps(folder: Path) -> list[int]:
    """The steps of the checkpoints of a run, oldest first."""
    return sorted(map(int, filter(is_step, files.names(folder / "checkpoints"))))


def is_step(name: str) -> bool:
    """Whether a name is the number of a step, as we write it."""
    return re.fullmatch(r"0|[1-9][0-9]{0,17}", name) is not None


def bests(folder: Path) -> list[int]:
    """The steps whose weights were the best at their time, as far as they are still there."""
    found = [n[5:] for n in files.names(folder / "checkpoints") if n.startswith("best-")]
    return sorted(map(int, filter(is_step, found)))


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return folder / "checkpoints" / str(step)


def best_path(folder: Path, step: int) -> Path:
    """Where the weights of the best evaluation are, of a step."""
    return folder / "checkpoints" / f"best-{step}"


def progress_of(path: Path, manifests: Manifests | None = None) -> Best:
    """What a checkpoint says of the best evaluation and of the log; the weights are not read."""
    stored = _parse_state(path, read_bundle(path, (STATE,), manifests=manifests)[STATE])
    with _damage(path):
        return _progress(stored.get("progress", {}))  # a fitting or a simulation has none


def newest_progress(folder: Path) -> Best:
    """What the newest checkpoint whose record can be read says of the best evaluation."""
    return _first_good(folder, _newest_first(folder), progress_of)[1]


def newest(folder: Path) -> Path:
    """The newest checkpoint of which every byte is as it was written."""
    return _first_good(folder, _newest_first(folder), read_bundle)[0]


def done(folder: Path) -> int:
    """Updates done by the newest checkpoint whose record can be read."""
    return int(_first_good(folder, _newest_first(folder), progress_of)[0].name)


def put_aside(path: Path) -> None:
    """Give a damaged checkpoint another name, so that its step can be reached again."""
    if files.exists(path):
        taken = files.names(path.parent)
        free = (f"{path.name}.damaged-{n}" for n in count(1))
        files.rename(path, next(name for name in free if name not in taken))


# ------------------------------------------------------------------------ fittings, simulations


def save_values(path: Path, values: Mapping[str, Any]) -> None:
    """Write named values: tensors, arrays, numbers, text, and lists and dicts of them."""
    tensors: dict[str, Tensor] = {}
    plain = {n: encode(v, n, f"{i}/{n}", tensors) for i, (n, v) in enumerate(values.items())}
    write_bundle(path, {MODEL: _saved(tensors), STATE: canonical(plain)})


def load_values(path: Path) -> dict[str, Any]:
    """What `save_values` wrote."""
    contents = read_bundle(path, (MODEL, STATE), {MODEL: VALUES})
    tensors, plain = _tensors(path, contents[MODEL]), _parse_state(path, contents[STATE])
    with _damage(path):
        return {name: decode(value, tensors.__getitem__) for name, value in plain.items()}


def load_newest_values(folder: Path) -> dict[str, Any]:
    """The values of the newest checkpoint that can be read."""
    return _first_good(folder, _newest_first(folder), load_values)[1]
