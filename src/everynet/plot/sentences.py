"""Sentences inside a network: states and attention by token, and whole sentences as points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn.functional import pad

from everynet.plot.style import FAINT, INK, MAGNITUDE, SIGNED, array, colour, figure, symmetric

NAMED = 8  # groups that get a colour of their own


def encoder_decoder_states(
    encoder: Float[Tensor, "read units"],
    decoder: Float[Tensor, "said units"],
    source: Sequence[str],
    output: Sequence[str],
) -> Figure:
    """Every unit (down) at every token (across), of the encoder and then of the decoder.

    The framed column is one and the same vector: the encoder's last state and the decoder's first.
    Units are in the order of their value there.
    """
    order = encoder[-1].argsort(descending=True)
    low, high = symmetric(torch.cat([encoder, decoder]))
    made = figure(6.5, 3.9)
    made.clear()
    given = made.subplots(1, 2, sharey=True, width_ratios=[len(encoder), len(decoder) + 1])
    after = torch.cat([encoder[-1:], decoder])
    left = (given[0], encoder, list(source), len(encoder) - 1, "read; $c$ is its last state")
    right = (given[1], after, ["$c$", *output], 0, "said, beginning with $c$")
    for axes, states, labels, framed, title in (left, right):
        image = axes.imshow(
            array(states[:, order].T), cmap=SIGNED, vmin=low, vmax=high, aspect="auto",
            interpolation="nearest",
        )  # fmt: skip
        long = max(len(label.strip("$<>")) for label in labels) > 3
        turn = {"rotation": 50, "ha": "right", "rotation_mode": "anchor"} if long else {}
        axes.set_xticks(range(len(labels)), [label.strip("<>") for label in labels], **turn)
        axes.set_xlabel("token")
        axes.tick_params(labelsize="small")
        axes.set_title(title, color=INK, fontsize="medium")
        corner, units = (framed - 0.5, -0.5), states.shape[1]
        axes.add_patch(Rectangle(corner, 1, units, fill=False, ec=INK, lw=2, clip_on=False))
    given[0].set_ylabel("unit, by its value in the last state $c$")
    made.colorbar(image, ax=given, label="state", shrink=0.9, pad=0.02)
    return made


def attention_maps(
    maps: Sequence[tuple[str, Float[Tensor, "_ _"], Sequence[str], Sequence[str]]],
    *,
    columns: int = 0,
) -> Figure:
    """Attention, bright where it is 1: of each map its title, the tokens that read and those read.

    Tokens that read stand down the side, and those that are read across; where all maps are of the
    same tokens, only those at the edge are named.
    """
    columns = min(columns or len(maps), len(maps))
    rows = -(-len(maps) // columns)
    same = len(maps) > 1 and all(m[2:] == maps[0][2:] for m in maps)
    tall = max(len(m[2]) / max(len(m[3]), 1) for m in maps)
    side = 6.5 / columns
    made = figure(6.5, min(8.0, rows * min(side, max(1.2, side * min(tall, 1.4))) + 0.9))
    made.clear()
    given = np.atleast_1d(made.subplots(rows, columns, squeeze=False)).ravel()
    for number, (axes, (title, weights, *both)) in enumerate(zip(given, maps, strict=False)):
        image = axes.imshow(
            array(weights), cmap=MAGNITUDE, vmin=0, vmax=1, aspect="auto", interpolation="nearest"
        )
        reading, read = ([name_token(token) for token in side] for side in both)
        left, bottom = number % columns == 0, number + columns >= len(maps)
        axes.set_title(title, color=INK, fontsize="medium")
        axes.set_xticks(range(len(read)), read if bottom or not same else [""] * len(read))
        axes.set_yticks(range(len(reading)), reading if left or not same else [""] * len(reading))
        axes.tick_params(labelsize="small", length=0)
        axes.set(xlabel="is read" if bottom else "", ylabel="reads" if left else "")
        if max(map(len, read), default=0) > 1:
            for label in axes.get_xticklabels():
                label.set(rotation=60, ha="right", rotation_mode="anchor")
    for axes in given[len(maps) :]:
        axes.set_visible(False)
    made.colorbar(image, ax=[*given], label="attention", shrink=0.7, pad=0.02)
    return made


def head_maps(
    layers: Sequence[Float[Tensor, "heads _ _"]], names: Sequence[str], *, most: int = 4
) -> Figure:
    """Self-attention of up to `most` heads of as many layers, from the first layer to the last."""
    places = np.linspace(0, len(layers) - 1, min(most, len(layers))).round().astype(int).tolist()
    maps = [
        (f"layer {n + 1}, head {h + 1}", head, names, names)
        for n in places
        for h, head in enumerate(layers[n][:most])
    ]
    return attention_maps(maps, columns=min(most, len(layers[0])))


def name_token(token: str) -> str:
    """A token as a label: bytes that are no character as a mark, and no mathematics."""
    text = token.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text.strip().replace("$", r"\$") or "\u2423"


def sentence_map(
    vectors: Float[Tensor, "rows units"],
    groups: Int[Tensor, " rows"],
    names: Sequence[str],
    lengths: Int[Tensor, " rows"],
    *,
    title: str,
) -> Figure:
    """Sentences on the two axes along which their vectors differ most, coloured in two ways.

    On the left by group, the commonest of which have a colour of their own; on the right by length.
    """
    values = vectors.detach().double().cpu()
    centred = values - values.mean(0)
    _, spread, directions = torch.linalg.svd(centred, full_matrices=False)
    across, up = array(pad(centred @ directions[:2].T, (0, 2 - min(2, len(spread)))).T)
    shares = [*(spread**2 / (spread**2).sum().clamp(min=1e-30)).tolist(), 0.0]
    made = figure(6.5, 3.0, 1, 2)
    left, right = made.axes
    group_of = groups.cpu().numpy()
    common = [group for group, _ in Counter(group_of.tolist()).most_common()]
    own = sorted(common[:NAMED], key=lambda group: names[group])
    rest = ~np.isin(group_of, own)
    if rest.any():
        left.scatter(across[rest], up[rest], s=7, color=FAINT, linewidths=0, label="other")
    for number, group in enumerate(own):
        mine = group_of == group
        left.scatter(
            across[mine], up[mine], s=9, color=colour(number), linewidths=0, label=names[group]
        )
    left.legend(
        title=title, fontsize="small", title_fontsize="small", frameon=False, markerscale=2,
        loc="center left", bbox_to_anchor=(1.0, 0.5),
    )  # fmt: skip
    shown = right.scatter(across, up, s=9, c=array(lengths), cmap=MAGNITUDE, linewidths=0)
    made.colorbar(shown, ax=right, label="tokens of the sentence")
    for axes in (left, right):
        axes.set_xlabel(f"first component ({shares[0]:.0%} of the variance)")
        axes.set_ylabel(f"second component ({shares[1]:.0%})")
    return made
