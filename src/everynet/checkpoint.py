"""Checkpoints: safetensors, JSON and a manifest with the SHA-256 of each file and of itself.

    checkpoints/STEP/         all that changes while a run goes on, so that it can go on from there
    checkpoints/best-STEP/    the weights of the best evaluation, no more

Weights and moments are found again by the names of their parameters and copied into tensors
that already have the right strides, so that what is restored computes the very same bits.
Whoever reads is told what is damaged; only `restore_newest` puts a damaged folder aside.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from everynet import files
from everynet.recipes import State
from everynet.types import NoCheckpoint, UserError

MANIFEST, MODEL, STATE, TENSORS = (
    "manifest.json",
    "model.safetensors",
    "state.json",
    "state.safetensors",
)


T = TypeVar("T")


class DamagedCheckpoint(UserError):
    """A checkpoint whose bytes are not those that were written."""


@dataclass
class Best:
    """What a checkpoint holds besides the state: the best evaluation and the log's length."""

    best_step: int = -1
    best_value: float = 0.0
    log_length: int = 0


# ----------------------------------------------------------------------------- folders of bytes


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode()


def write_bundle(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write files and their manifest as one folder, whole or not at all."""
    manifest: dict[str, Any] = {
        "format": 1,
        "files": {name: _digest(content) for name, content in contents.items()},
    }
    manifest["self"] = _digest(_canonical(manifest))
    files.write_folder(path, {**contents, MANIFEST: _canonical(manifest)})


def read_bundle(path: Path, names: Iterable[str] | None = None) -> dict[str, bytes]:
    """The files of a folder (or those of `names`), every byte checked against the manifest."""
    try:
        stored = files.read(path / MANIFEST)
        manifest = json.loads(stored)
        claimed = manifest.pop("self")
        if claimed != _digest(_canonical(manifest)):
            raise DamagedCheckpoint(f"{path / MANIFEST} is damaged: its checksum does not match")
        if stored != _canonical({**manifest, "self": claimed}):
            raise DamagedCheckpoint(f"{path / MANIFEST} is damaged: it is not as it was written")
        digests = {name: manifest["files"][name] for name in names or manifest["files"]}
        contents = {name: files.read(path / name) for name in digests}
    except DamagedCheckpoint:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpoint(f"{path} is damaged: {str(error).splitlines()[0]}") from error
    for name, digest in digests.items():
        if _digest(contents[name]) != digest:
            raise DamagedCheckpoint(f"{path / name} is damaged: its checksum does not match")
    return contents


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
    """Fill tensors with the saved ones of the same names."""
    if odd := sorted(set(saved) ^ set(wanted)):
        raise UserError(f"the checkpoint does not fit the network: {odd[0]} is in one only")
    with torch.no_grad():
        for name, tensor in wanted.items():
            value = saved[name]
            if value.shape != tensor.shape:
                raise UserError(
                    f"the checkpoint does not fit the network: {name} is {list(value.shape)} "
                    f"there and {list(tensor.shape)} here"
                )
            tensor.copy_(value)


def _encode(value: object, name: str, key: str, tensors: dict[str, Tensor]) -> object:
    """Plain JSON for a value; its tensors are set aside under `key`, `name` is for the refusal."""
    plain: object = None
    match value:
        case float() if not math.isfinite(value):
            plain = {"float": str(value)}
        case None | bool() | int() | float() | str():
            plain = value
        case list():
            plain = [_encode(v, f"{name}[{i}]", f"{key}/{i}", tensors) for i, v in enumerate(value)]
        case tuple():
            plain = {"tuple": _encode([*value], name, key, tensors)}
        case dict():
            for inner in value:
                if type(inner) not in (str, int, float, bool, type(None)):
                    raise UserError(
                        f"{name} has the key {inner!r}, which cannot be saved: keys must be text "
                        "or numbers"
                    )
            items = [
                _encode(v, f"{name}[{k!r}]", f"{key}/{i}", tensors)
                for i, (k, v) in enumerate(value.items())
            ]
            plain = {"keys": _encode([*value], name, key, tensors), "values": items}
        case np.ndarray() if value.dtype.kind == "U":
            plain = {"texts": value.tolist(), "dtype": value.dtype.str}
        case Tensor() | np.ndarray() | np.generic():
            kind = "tensor" if isinstance(value, Tensor) else "array"
            plain = {"scalar" if isinstance(value, np.generic) else kind: key}
            tensors[key] = _tensor(value, name)
        case _:
            _refuse(value, name)
    return plain


def _tensor(value: Tensor | np.ndarray | np.generic, name: str) -> Tensor:
    """A tensor of a kind that safetensors takes, if there is one for the value."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.array(value))
    except (TypeError, ValueError):  # dates, objects, numpy's longdouble, swapped bytes
        _refuse(value, name)
    if tensor.layout != torch.strided or tensor.is_complex():
        _refuse(value, name)
    return tensor


def _refuse(value: object, name: str) -> NoReturn:
    kind = f" of {value.dtype}" if isinstance(value, Tensor | np.ndarray) else ""
    raise UserError(
        f"{name} is a {type(value).__name__}{kind}, which cannot be saved: keep tensors, arrays, "
        "numbers and text, and lists and dicts of them"
    )


def _decode(value: Any, tensor: Callable[[str], Tensor]) -> Any:  # noqa: ANN401 -- JSON, any value
    """What `_encode` was given; `tensor` finds the one that was set aside under a key."""
    match value:
        case list():
            value = [_decode(v, tensor) for v in value]
        case {"tensor": key}:
            value = tensor(key)
        case {"array": key}:
            value = tensor(key).numpy()
        case {"scalar": key}:
            value = tensor(key).numpy()[()]
        case {"texts": texts, "dtype": kind}:
            value = np.array(texts, kind)
        case {"float": text}:
            value = float(text)
        case {"tuple": items}:
            value = tuple(_decode(items, tensor))
        case {"keys": keys, "values": values}:
            value = dict(zip(_decode(keys, tensor), _decode(values, tensor), strict=True))
    return value


def _like(saved: Tensor, key: str, parameter: Tensor, fused: bool) -> Tensor:
    """What an optimiser remembers of a parameter, with the parameter's strides, where it is."""
    if saved.shape == parameter.shape and saved.dim() > 0:
        return torch.empty_like(parameter, dtype=saved.dtype, requires_grad=False).copy_(saved)
    count = key.endswith("/step") and not fused  # torch counts on the CPU then
    return saved.clone() if count else saved.to(parameter.device, copy=True)


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
                what: _encode(
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
            STATE: _canonical(about),
        },
    )


def save_model(path: Path, model: nn.Module) -> None:
    """Write the weights alone."""
    write_bundle(path, {MODEL: _saved(_module_tensors(model))})


def restore(path: Path, state: State, deployed: nn.Module) -> Best:
    """Put a checkpoint into a state that was begun with the same recipe."""
    return _restore(path, _whole(path), state, deployed)


def restore_newest(folder: Path, state: State, deployed: nn.Module) -> tuple[Path, Best]:
    """Go on from the newest checkpoint that can be trusted; a damaged one is put out of the way."""
    paths = (path_of(folder, step) for step in reversed(steps(folder)))
    path, contents, _ = _first_good(folder, paths, _whole, damaged=put_aside)
    return path, _restore(path, contents, state, deployed)


def _whole(path: Path) -> dict[str, bytes]:
    """All files of a checkpoint of a Training."""
    contents = read_bundle(path)
    if not {MODEL, TENSORS, STATE} <= {*contents}:
        raise DamagedCheckpoint(f"{path} is damaged: it must hold {MODEL}, {TENSORS} and {STATE}")
    return contents


def _restore(path: Path, contents: Mapping[str, bytes], state: State, deployed: nn.Module) -> Best:
    about, tensors = json.loads(contents[STATE]), _tensors(path, contents[TENSORS])
    if path.name != str(about["step"]):
        raise DamagedCheckpoint(f"{path} is damaged: it holds step {about['step']}")
    _copy(_module_tensors(deployed), _tensors(path, contents[MODEL]))
    moments = {key for key in tensors if key.startswith("optimizer/")}
    _copy(_others(state, deployed), {n: t for n, t in tensors.items() if n not in moments})
    names = _parameter_names(state)
    for key, optimizer in state.optimizers.items():
        memory = about["optimizers"][key]
        optimizer.state.clear()
        for group in optimizer.param_groups:
            fused = bool(group.get("fused") or group.get("capturable"))
            for p in group["params"]:
                if names[id(p)] in memory:
                    optimizer.state[p] = {
                        what: _decode(value, lambda k, p=p, f=fused: _like(tensors[k], k, p, f))  # type: ignore[misc]  # mypy cannot infer it
                        for what, value in memory[names[id(p)]].items()
                    }
    state.step = about["step"]
    return Best(**about["progress"])


def _tensors(path: Path, content: bytes) -> dict[str, Tensor]:
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise DamagedCheckpoint(f"{path} is damaged: {error}") from error


def _weights(path: Path) -> dict[str, Tensor]:
    return _tensors(path, read_bundle(path, (MODEL,))[MODEL])


def restore_model(path: Path, model: nn.Module) -> None:
    """Put the deployed weights of a checkpoint into a network."""
    _copy(_module_tensors(model), _weights(path))


def kept_weights(folder: Path) -> bytes:
    """The file of the weights that a run keeps."""
    read = _first_good(folder, _candidates(folder), lambda path: read_bundle(path, (MODEL,)))
    return read[1][MODEL]


def weights_in(path: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise UserError(f"{path} is no safetensors file, or is damaged: {error}") from error


def load_kept(folder: Path, model: nn.Module) -> str:
    """Put the weights that a run keeps into a network; says what was damaged and passed over."""
    path, weights, problem = _first_good(folder, _candidates(folder), _weights)
    _copy(_module_tensors(model), weights)
    return f"{problem}; the weights of {path} are taken instead" if problem else ""


def _candidates(folder: Path) -> Iterator[Path]:
    """Where the weights of a run may be found, the best of the newest checkpoint first."""
    for step in reversed(steps(folder)):
        path = path_of(folder, step)
        try:
            best = progress_of(path).best_step
        except UserError:
            yield path / STATE  # which cannot be read: whoever tries is told why
            continue
        if best >= 0:
            yield best_path(folder, best)
        yield path


def _first_good(
    folder: Path,
    paths: Iterable[Path],
    read: Callable[[Path], T],
    damaged: Callable[[Path], object] = lambda _path: None,
) -> tuple[Path, T, str]:
    """The first of the paths that can be read, what was read, and what was wrong before it."""
    problem = ""
    for path in paths:
        try:
            return path, read(path), problem
        except UserError as error:
            problem = problem or str(error)
            damaged(path)
    raise NoCheckpoint(
        f"{folder} has no valid checkpoint left{problem and f': {problem}'}; start it again"
    )


def steps(folder: Path) -> list[int]:
    """The steps of the checkpoints of a run, oldest first."""
    return sorted(int(p.name) for p in (folder / "checkpoints").glob("*") if p.name.isdigit())


def bests(folder: Path) -> list[int]:
    """The steps whose weights were the best at their time, as far as they are still there."""
    found = (p.name.removeprefix("best-") for p in (folder / "checkpoints").glob("best-*"))
    return sorted(int(name) for name in found if name.isdigit())


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return folder / "checkpoints" / str(step)


def best_path(folder: Path, step: int) -> Path:
    """Where the weights of the best evaluation are, of a step."""
    return folder / "checkpoints" / f"best-{step}"


def progress_of(path: Path) -> Best:
    """What a checkpoint says of the best evaluation and of the log; the weights are not read."""
    said = json.loads(read_bundle(path, (STATE,))[STATE])
    return Best(**said.get("progress", {}))  # a fitting or a simulation has none


def newest(folder: Path) -> Path:
    """The newest checkpoint of which every byte is as it was written."""
    paths = (path_of(folder, step) for step in reversed(steps(folder)))
    return _first_good(folder, paths, read_bundle)[0]


def done(folder: Path) -> int:
    """Updates done by the newest checkpoint whose record can be read."""
    paths = (path_of(folder, step) for step in reversed(steps(folder)))
    return int(_first_good(folder, paths, progress_of)[0].name)


def put_aside(path: Path) -> None:
    """Give a damaged checkpoint another name, so that its step can be reached again."""
    others = len([*path.parent.iterdir()])
    if path.exists():
        files.rename(path, path.with_name(f"{path.name}.damaged-{others}"))


# ------------------------------------------------------------------------ fittings, simulations


def save_values(path: Path, values: Mapping[str, Any]) -> None:
    """Write named values: tensors, arrays, numbers, text, and lists and dicts of them."""
    tensors: dict[str, Tensor] = {}
    plain = {n: _encode(v, n, f"{i}/{n}", tensors) for i, (n, v) in enumerate(values.items())}
    write_bundle(path, {MODEL: _saved(tensors), STATE: _canonical(plain)})


def load_values(path: Path) -> dict[str, Any]:
    """What `save_values` wrote."""
    contents = read_bundle(path)
    tensors = _tensors(path, contents[MODEL])
    plain = json.loads(contents[STATE])
    return {name: _decode(value, tensors.__getitem__) for name, value in plain.items()}


def load_newest_values(folder: Path) -> dict[str, Any]:
    """The values of the newest checkpoint that can be read."""
    paths = (path_of(folder, step) for step in reversed(steps(folder)))
    return _first_good(folder, paths, load_values)[1]
