"""Whether a figure can be read on a page: its width, the size of its text, what runs into what."""

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from mpl_toolkits.mplot3d import Axes3D

from everynet.plot.style import LEAST, WIDTH

MUCH = 0.12  # the share of the smaller of two texts that may lie under the other's box
EDGE = 3  # pixels of a letter's box that may stand over the edge of the canvas


def faults(figure):
    """What makes it hard to read at any size: cheap, because nothing is laid out."""
    width = figure.get_size_inches()[0]
    found = [f"{width:.1f} inches wide"] if width > WIDTH + 0.01 else []
    for text in figure.findobj(Text):
        printed = text.get_fontsize() * min(1.0, WIDTH / width)
        if text.get_visible() and text.get_text().strip() and printed < LEAST - 0.01:
            found.append(f"{printed:.1f} points: {text.get_text()!r}")
    return found


def collisions(figure):
    """Texts that run into each other or over the edge; the figure is laid out and drawn for it."""
    drawn, draw = [], Text.draw
    canvas = FigureCanvasAgg(figure)

    def remembered(text, renderer, *rest, **named):
        draw(text, renderer, *rest, **named)
        solid = isinstance(text.axes, Axes3D) or (text.axes is None and _in_space(text, figure))
        if text.get_visible() and text.get_text().strip() and not solid:
            drawn.append(text)

    Text.draw = remembered
    try:
        canvas.draw()
    finally:
        Text.draw = draw
    boxes = {}
    for text in drawn:
        box = text.get_window_extent(canvas.get_renderer())
        if text.get_rotation() % 90 == 0 and box.width * box.height > 0:
            boxes[(text.get_text(), *map(round, box.extents))] = box
    found, page = [], figure.bbox
    for (said, *_), box in boxes.items():
        over = max(page.x0 - box.x0, page.y0 - box.y0, box.x1 - page.x1, box.y1 - page.y1)
        if over > EDGE:
            found.append(f"{over:.0f} pixels over the edge: {said!r}")
    for ((one, *_), left), ((other, *_), right) in combinations(boxes.items(), 2):
        across = min(left.x1, right.x1) - max(left.x0, right.x0)
        up = min(left.y1, right.y1) - max(left.y0, right.y0)
        small = min(left.width * left.height, right.width * right.height)
        if across > 0 and up > 0 and across * up > MUCH * small:
            found.append(f"{one!r} over {other!r}")
    return found


def _in_space(text, figure):
    """Whether it belongs to a tick of axes in three dimensions, which know no place of theirs."""
    solid = [axes for axes in figure.axes if isinstance(axes, Axes3D)]
    return any(text in axes.findobj(Text) for axes in solid)
