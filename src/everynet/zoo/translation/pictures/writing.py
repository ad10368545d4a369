"""A sentence as it is translated: what is written, and which words are looked at meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.sentences import name_token
from everynet.plot.style import FAINT, INK, OURS, WIDTH, bare
from everynet.system.errors import UserError

LETTERS = 92  # on a line as wide as a page
GAP = 1.3  # letters between two tokens
MOST_SPREAD = 2.0  # by which few tokens are drawn farther apart
LEAST_SHOWN = 0.02  # of attention: what is less has no line


def attention_frames(
    attention: Float[Tensor, "written read"], written: Sequence[str], read: Sequence[str]
) -> Iterator[Figure]:
    """A frame for each token that is written: lines to the tokens that it looks at.

    A line is as wide as its attention, and so dark is the ground of a token; what earlier tokens
    looked at stays grey.
    """
    written, read = ([name_token(token) for token in side] for side in (written, read))
    below, above = _place(written), _place(read)
    for now in range(len(written)) or (-1,):
        made = Figure(figsize=(WIDTH, 1.9))
        axes = made.add_axes((0, 0, 1, 1))
        for row, line in enumerate(attention[: now + 1].tolist()):
            for column, share in enumerate(line):
                if share >= LEAST_SHOWN:
                    axes.plot(
                        [below[row], above[column]], [0.16, 0.84],
                        linewidth=share * (5 if row == now else 2), zorder=1 + (row == now),
                        color=OURS if row == now else FAINT, solid_capstyle="butt",
                    )  # fmt: skip
        looked = attention[now].tolist() if now >= 0 else [0.0] * len(read)
        for x, token, share in zip(above, read, looked, strict=True):
            _write(axes, x, 1.0, token, share)
        for row, (x, token) in enumerate(zip(below, written[: now + 1], strict=False)):
            _write(axes, x, 0.0, token, float(row == now))
        if now >= 0:
            most = int(attention[now].argmax())
            said = f"writes “{written[now]}” and looks most at “{read[most]}”: {looked[most]:.0%}"
        else:
            said = "writes nothing"
        axes.text(LETTERS / 2, -0.48, said, ha="center", va="center", color=INK)
        axes.set(xlim=(0, LETTERS), ylim=(-0.7, 1.3))
        bare(axes)
        yield made


def _place(tokens: Sequence[str]) -> list[float]:
    """The middle of each token, in letters, on a line that is centred."""
    sizes = [len(token) + GAP for token in tokens]
    if sum(sizes) > LETTERS:
        raise UserError(
            f"text, or its translation ({' '.join(tokens)[:40]}...), must fit on a line of "
            f"{LETTERS} letters, because a film shows all tokens side by side; give a shorter one"
        )
    spread = min(MOST_SPREAD, LETTERS / max(1.0, sum(sizes)))
    start = (LETTERS - spread * sum(sizes)) / 2
    return [start + spread * (sum(sizes[:n]) + size / 2) for n, size in enumerate(sizes)]


def _write(axes: Axes, x: float, y: float, token: str, share: float) -> None:
    """A token on a ground as dark as its share."""
    ground = {"boxstyle": "round,pad=0.22", "facecolor": OURS, "edgecolor": "none", "alpha": share}
    ink = "white" if share > 0.5 else INK
    axes.text(x, y, token, ha="center", va="center", color=ink, bbox=ground, zorder=3)
