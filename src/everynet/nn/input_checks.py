"""Error messages of a network for an input that does not fit: the shape it wants, and a remedy.

Only shapes and types are looked at, once a call: nothing waits for the device, and a compiled or
captured network is the same without.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from everynet.system.tracing import is_traced, is_transformed
from everynet.system.wording import with_article

Shape = tuple[int, ...]


def require_images(network: nn.Module, x: Tensor, *, side: int = 0, least: int = 1) -> None:
    """Refuse all but (batch, channels, height, width), of `side` x `side` where that is fixed.

    The channels are those of the network's first convolution.
    """
    weight = next(weight for weight in network.parameters() if weight.dim() >= 4)
    channels = weight.shape[1]
    if isinstance(x, Tensor) and x.dim() == 4 and x.shape[1] == channels:
        rows, columns = x.shape[2], x.shape[3]
        fits = rows == side and columns == side if side else rows >= least and columns >= least
        if fits and _is_real(x, weight):
            return
    wanted = f"batch, {channels}, " + (f"{side}, {side}" if side else "height, width")
    name = type(network).__name__
    _require_tensor(name, x, weight, f"images of shape ({wanted})")
    raise ValueError(
        f"{name} must be given images of shape ({wanted}), not {_shape(x)}"
        f"{_advice(tuple(x.shape), channels, side, least)}"
    )


def _advice(shape: Shape, channels: int, side: int, least: int) -> str:
    """A hint how to mend the shape of images, or nothing."""
    given = shape[1] if len(shape) == 4 else 0
    n, odd = divmod(side - shape[-1], 2)
    match len(shape):
        case 2:
            hint = "; put axes for batch and channel before it: x[None, None]"
        case 3 if shape[0] == channels:
            hint = "; put an axis for the batch before it: x[None]"
        case 3 if channels == 1:
            hint = "; put an axis for the channel into it: x[:, None]"
        case 4 if given != channels == shape[3]:
            hint = "; its channels come last: x.permute(0, 3, 1, 2)"
        case 4 if given != channels:
            hint = f"; make the network with in_channels={given}, or images with {channels} of them"
        case 4 if side and shape[2] == shape[3] and n > 0 and not odd:
            edge = f"torch.nn.functional.pad(x, ({n}, {n}, {n}, {n}))"
            hint = f"; resize them, or put a border around them: {edge}"
        case 4 if side:
            hint = f"; resize them: torch.nn.functional.interpolate(x, size=({side}, {side}))"
        case 4:
            hint = f"; of at least {least} x {least}, because pooling would leave nothing of them"
        case _:
            hint = ""
    return hint


def require_sequences(
    name: str,
    x: Tensor,
    weight: Tensor,
    features: int,
    *,
    block: str = "cell",
    size: str = "input_size",
) -> None:
    """Refuse all but (batch, time, features); the block was made with them as its `size`."""
    fits = isinstance(x, Tensor) and x.dim() == 3 and x.shape[2] == features
    if fits and x.shape[1] > 0 and _is_real(x, weight):
        return
    wanted = f"(batch, time, {features})"
    _require_tensor(name, x, weight, f"sequences of shape {wanted}")
    shape = tuple(x.shape)
    hint = ""
    if fits:
        hint = f", because {with_article(block)} gives nothing without input"
    elif len(shape) == 2 and shape[1] == features:
        hint = "; put an axis for the batch before it: x[None]"
    elif len(shape) == 2 and features == 1:
        hint = "; put an axis for the one number of each time behind it: x[..., None]"
    elif len(shape) == 3:
        hint = f"; make the {block} with {size}={shape[2]}, or give {features} numbers a time"
    least = " with at least 1 time" if fits else ""
    raise ValueError(
        f"{name} must be given sequences of shape {wanted}{least}, not {_shape(x)}{hint}"
    )


def require_lengths(lengths: Tensor, time: int, *, least: int = 1) -> None:
    """Refuse lengths below `least` or above `time`; not on a GPU, nor where torch traces."""
    if not lengths.is_cpu or is_traced() or is_transformed():
        return
    shortest, longest = (int(n) for n in lengths.aminmax())
    if shortest < least or longest > time:
        because = "a row has a last time and x has no more of them"
        raise ValueError(
            f"lengths ({shortest} to {longest}) must be from {least} to {time}, because "
            f"{because if least else 'a row has no more time steps'}"
        )


_MASKS = (
    "because it says of each query which keys it may read; padding_mask(lengths, keys) and "
    "causal_mask(queries, keys) make such masks"
)


def require_mask(mask: Tensor, batch: int, queries: int, keys: int) -> Tensor:
    """The mask with an axis for heads; refuse all but True and False for each query and key."""
    _require_bool(mask)
    shape = tuple(mask.shape)
    if shape == (queries, keys):
        return mask[None, None]
    if len(shape) == 3 and shape in ((batch, queries, keys), (batch, 1, keys)):
        return mask[:, None]
    wanted = f"({queries}, {keys}), ({batch}, {queries}, {keys}) or ({batch}, 1, {keys})"
    raise ValueError(f"mask {_shape(mask)} must be of shape {wanted}, {_MASKS}")


def require_mask_of(scores: Tensor, mask: Tensor) -> None:
    """Refuse a mask that does not broadcast to the scores, or would make more of them."""
    _require_bool(mask)
    pairs = zip(reversed(mask.shape), reversed(scores.shape), strict=False)
    if mask.dim() > scores.dim() or any(n not in (1, m) for n, m in pairs):
        raise ValueError(f"mask {_shape(mask)} must broadcast to scores {_shape(scores)}, {_MASKS}")


def _require_bool(mask: Tensor) -> None:
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask ({_dtype_name(mask)}) must be bool, True where a key may be read, because "
            "numbers would be read as scores to add; use mask == 0 of such scores"
        )


def require_samples(name: str, x: Tensor, weight: Tensor, features: int) -> None:
    """Refuse all but a batch of samples that have so many numbers each, in any shape."""
    fits = isinstance(x, Tensor) and x.dim() >= 2 and math.prod(x.shape[1:]) == features
    if fits and _is_real(x, weight):
        return
    wanted = f"(batch, {features})"
    _require_tensor(name, x, weight, f"samples of shape {wanted}")
    shape, hint = tuple(x.shape), ""
    if len(shape) == 1:
        hint = "; put an axis for the batch before it: x[None]"
    elif len(shape) > 1:
        each = math.prod(shape[1:])
        hint = f", which has {each} numbers a sample; make the network with {each} inputs"
    raise ValueError(f"{name} must be given samples of shape {wanted}, not {_shape(x)}{hint}")


def _is_real(x: Tensor, weight: Tensor) -> bool:
    """Whether the dtype fits that of the weights; half precision does, by autocast."""
    if x.dtype == weight.dtype:
        return True
    return x.is_floating_point() and torch.float64 not in (x.dtype, weight.dtype)


def _require_tensor(name: str, x: object, weight: Tensor, what: str) -> None:
    """Refuse all but tensors of the dtype of the weights."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name} must be given {what} as a tensor, not {with_article(type(x).__name__)}; "
            "torch.as_tensor(x, dtype=torch.float32) makes one of an array or a list"
        )
    if _is_real(x, weight):
        return
    wanted, given = _dtype_name(weight), _dtype_name(x)
    scale = " / 255" if x.dtype == torch.uint8 else ""
    mend = f"x.to(torch.{wanted}){scale}"
    raise TypeError(
        f"{name} must be given {what} in {wanted}, as its weights are, not {given}; use {mend}"
    )


def _dtype_name(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _shape(x: Tensor) -> str:
    return str(tuple(x.shape))
