"""Checkpoints: safetensors, JSON and a manifest with the SHA-256 of each file and of itself.

Weights and moments are found again by the names of their parameters and copied into tensors
that already have the right strides, so that what is restored computes the very same bits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def read_bundle(path: Path) -> dict[str, bytes]:
    """The files of a folder, every byte checked against the manifest."""
    try:
        stored = files.read(path / MANIFEST)
        manifest = json.loads(stored)
        claimed = manifest.pop("self")
        if claimed != _digest(_canonical(manifest)):
            raise DamagedCheckpoint(f"{path / MANIFEST} is damaged: its checksum does not match")
        if stored != _canonical({**manifest, "self": claimed}):
            raise DamagedCheckpoint(f"{path / MANIFEST} is damaged: it is not as it was written")
        contents = {name: files.read(path / name) for name in manifest["files"]}
    except DamagedCheckpoint:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpoint(f"{path} is damaged: {str(error).splitlines()[0]}") from error
    for name, digest in manifest["files"].items():
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


def _copy_into(module: nn.Module, saved: Mapping[str, Tensor], prefix: str = "") -> None:
    wanted = _module_tensors(module)
    names = {name.removeprefix(prefix) for name in saved if name.startswith(prefix)}
    if names != set(wanted):
        odd = sorted(names ^ set(wanted))
        raise UserError(f"the checkpoint does not fit the network: {odd[0]} is in one only")
    with torch.no_grad():
        for name, tensor in wanted.items():
            value = saved[prefix + name]
            if value.shape != tensor.shape:
                raise UserError(
                    f"the checkpoint does not fit the network: {name} is {list(value.shape)} "
                    f"there and {list(tensor.shape)} here"
                )
            tensor.copy_(value)


def _encode(value: object, key: str, tensors: dict[str, Tensor]) -> object:
    """Plain JSON for what an optimiser remembers; tensors are set aside under `key`."""
    match value:
        case Tensor():
            tensors[key] = value
            return {"tensor": key}
        case list() | tuple():
            return [_encode(v, f"{key}/{i}", tensors) for i, v in enumerate(value)]
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"optimiser state {key} is a {type(value).__name__}, which cannot be saved")


def _decode(
    value: Any,  # noqa: ANN401 -- JSON
    tensors: Mapping[str, Tensor],
    like: Tensor,
    fused: bool,
) -> Any:  # noqa: ANN401 -- whatever the optimiser had
    match value:
        case {"tensor": key}:
            saved = tensors[key]
            if saved.shape == like.shape and saved.dim() > 0:
                return torch.empty_like(like, dtype=saved.dtype, requires_grad=False).copy_(saved)
            count = key.endswith("/step") and not fused  # torch counts on the CPU then
            return saved.clone() if count else saved.to(like.device, copy=True)
        case list():
            return [_decode(v, tensors, like, fused) for v in value]
    return value


def _parameter_names(state: State) -> dict[int, str]:
    names: dict[int, str] = {}
    for part, module in (("extra", state.extra), ("model", state.model)):
        names |= {id(p): f"{part}/{name}" for name, p in module.named_parameters()}
    for key, optimizer in state.optimizers.items():
        if any(id(p) not in names for group in optimizer.param_groups for p in group["params"]):
            raise TypeError(f"optimiser {key} must be given parameters of the model or of extra")
    return names


# ------------------------------------------------------------------------------------- training


def save(path: Path, state: State, deployed: nn.Module, progress: Best) -> None:
    """Write all that changes while a Training runs."""
    tensors = {f"extra/{n}": t for n, t in _module_tensors(state.extra).items()}
    if deployed is not state.model:
        tensors |= {f"model/{n}": t for n, t in _module_tensors(state.model).items()}
    names = _parameter_names(state)
    memory: dict[str, dict[str, Any]] = {}
    for key, optimizer in state.optimizers.items():
        memory[key] = {
            names[id(p)]: {
                what: _encode(value, f"optimizer/{key}/{names[id(p)]}/{what}", tensors)
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


def restore(path: Path, state: State, deployed: nn.Module) -> Best:
    """Put a checkpoint into a state that was begun with the same recipe."""
    contents = read_bundle(path)
    about, tensors = json.loads(contents[STATE]), _tensors(path, contents[TENSORS])
    if path.name != str(about["step"]):
        raise DamagedCheckpoint(f"{path} is damaged: it holds step {about['step']}")
    _copy_into(deployed, _tensors(path, contents[MODEL]))
    _copy_into(state.extra, tensors, "extra/")
    if deployed is not state.model:
        _copy_into(state.model, tensors, "model/")
    names = _parameter_names(state)
    for key, optimizer in state.optimizers.items():
        memory = about["optimizers"][key]
        optimizer.state.clear()
        for group in optimizer.param_groups:
            fused = bool(group.get("fused") or group.get("capturable"))
            for p in group["params"]:
                if names[id(p)] in memory:
                    optimizer.state[p] = {
                        what: _decode(value, tensors, p, fused)
                        for what, value in memory[names[id(p)]].items()
                    }
    state.step = about["step"]
    return Best(**about["progress"])


def _tensors(path: Path, content: bytes) -> dict[str, Tensor]:
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise DamagedCheckpoint(f"{path} is damaged: {error}") from error


def restore_model(path: Path, model: nn.Module) -> None:
    """Put the deployed weights of a checkpoint into a network."""
    _copy_into(model, _tensors(path, read_bundle(path)[MODEL]))


def steps(folder: Path) -> list[int]:
    """The steps of the checkpoints of a run, oldest first."""
    return sorted(int(p.name) for p in (folder / "checkpoints").glob("*") if p.name.isdigit())


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return folder / "checkpoints" / str(step)


def progress_of(path: Path) -> Best:
    """What a checkpoint says of the best evaluation and of the log."""
    return Best(**json.loads(read_bundle(path)[STATE])["progress"])


def newest(folder: Path) -> Path:
    """The newest checkpoint that can be trusted; a damaged one is put out of the way."""
    first_problem = ""
    for step in reversed(steps(folder)):
        path = path_of(folder, step)
        try:
            read_bundle(path)
        except UserError as error:
            first_problem = first_problem or f": {error}"
            files.rename(path, path.with_name(f"{step}.damaged-{len(list(path.parent.iterdir()))}"))
            continue
        return path
    raise NoCheckpoint(f"{folder} has no valid checkpoint left{first_problem}; start it again")


# ------------------------------------------------------------------------ fittings, simulations


def save_values(path: Path, values: Mapping[str, Any]) -> None:
    """Write named tensors, arrays, numbers and strings: a fitted estimator or a result."""
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Tensor):
            tensors[name] = value
            plain[name] = {"tensor": name}
        elif hasattr(value, "__array__") and not isinstance(value, float | int):
            tensors[name] = torch.as_tensor(value)
            plain[name] = {"array": name}
        else:
            plain[name] = _encode(value, name, {})
    write_bundle(path, {MODEL: _saved(tensors), STATE: _canonical(plain)})


def load_values(path: Path) -> dict[str, Any]:
    """What `save_values` wrote."""
    contents = read_bundle(path)
    tensors = _tensors(path, contents[MODEL])
    values: dict[str, Any] = {}
    for name, value in json.loads(contents[STATE]).items():
        match value:
            case {"tensor": key}:
                values[name] = tensors[key]
            case {"array": key}:
                values[name] = tensors[key].numpy()
            case _:
                values[name] = value
    return values
