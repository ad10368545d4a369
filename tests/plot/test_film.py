"""Films: every frame in its place and time, in the animation and in the strip for paper."""

import io

import matplotlib
import numpy as np
import pytest
from PIL import Image

from everynet.plot import film as films
from everynet.plot.film import Film
from everynet.plot.style import DPI, WIDTH, figure
from everynet.system.errors import UserError


def numbered(count, height=6, width=8):
    """Frames whose one dark pixel stands for their number."""
    frames = np.full((count, height, width, 3), 255, np.uint8)
    for number in range(count):
        frames[number, number // width % height, number % width] = number % 200
    return frames


def replayed(content):
    """The pixels and the milliseconds of each frame of an animation."""
    image, found, times = Image.open(io.BytesIO(content)), [], []
    for number in range(image.n_frames):
        image.seek(number)
        image.load()
        found.append(np.asarray(image.convert("RGB")))
        times.append(image.info["duration"])
    return np.stack(found), times


def test_an_animation_holds_every_frame_for_its_time():
    frames = numbered(7)
    found, times = replayed(Film(frames, 3).webp())
    assert np.array_equal(found, frames)
    assert times == [333, 334, 333, 333, 334, 333, 333]  # no error adds up: 7 / 3 seconds
    assert replayed(Film(frames, 50).webp())[1] == [20] * 7


def test_equal_frames_are_one_that_lasts_as_long():
    found, times = replayed(Film(numbered(3)[[0, 1, 1, 1, 2]], 10).webp())
    assert np.array_equal(found, numbered(3))
    assert times == [100, 300, 100]


def test_the_last_frame_stays_as_long_as_is_said():
    found, times = replayed(Film(numbered(3), 10, hold=4).webp())
    assert np.array_equal(found, numbered(3))
    assert times == [100, 100, 500]


def test_a_frame_may_be_drawn_on_the_figure_of_the_one_before():
    made = figure(0.5, 0.5)

    def drawn():
        for number in range(2):
            made.axes[0].set_facecolor(f"C{number}")
            yield made

    first, last = Film(drawn(), 1).frames
    assert (first != last).any()


def test_grey_frames_and_figures_become_colour():
    grey = np.arange(48, dtype=np.uint8).reshape(6, 8)
    assert np.array_equal(Film([grey], 1).frames, grey[None, ..., None].repeat(3, 3))
    drawn = Film([figure(1.0, 0.5), figure(1.0, 0.5)], 1).frames
    assert drawn.shape == (2, DPI // 2, DPI, 3)
    assert (drawn == 255).any()


def test_figures_are_drawn_one_after_the_other_in_the_style_of_all_pictures():
    sizes = []

    def drawn():
        for _ in range(2):
            made = figure(0.5, 0.5)
            sizes.append(made.axes[0].title.get_fontsize())
            yield made

    with matplotlib.rc_context({"font.size": 30.0}):
        Film(drawn(), 1)
    assert sizes == [8.5, 8.5]


@pytest.mark.parametrize(("count", "apart"), [(5, 1), (12, 1), (34, 3)])
def test_a_strip_shows_frames_at_equal_distances_on_a_page(count, apart):
    shown = range(0, count, apart)
    frames = numbered(count, 20, 290)
    film = Film(frames, 4)
    strip = Image.open(io.BytesIO(film.strip()))
    pixels = np.asarray(strip)
    assert strip.size[0] <= WIDTH * DPI
    assert strip.info["dpi"][0] == pytest.approx(DPI, rel=1e-3)
    gap = films.GAP
    for place, number in enumerate(shown):
        top, left = place // 3 * (20 + gap), place % 3 * (290 + gap)
        assert np.array_equal(pixels[top : top + 20, left : left + 290], frames[number])
    assert pixels.shape[0] == -(-len(shown) // 3) * (20 + gap) - gap


def test_a_strip_of_wide_frames_is_a_column():
    strip = Image.open(io.BytesIO(Film(numbered(2, 10, 2000), 1).strip()))
    assert strip.size == (2000, 20 + films.GAP)


def test_what_is_no_film(monkeypatch):
    good = numbered(1)[0]
    for rate in (0, -1, 61, float("nan")):
        with pytest.raises(UserError, match=r"rate \(.*\) must be above 0 and at most 60 frames a"):
            Film([good], rate)
    with pytest.raises(UserError, match=r"frames \(0\) must be one or more"):
        Film([], 1)
    for bad in (good / 255, good[..., :2], good[:0], "frame", good[:1].repeat(17_000, 0)):
        with pytest.raises(UserError, match=r"a frame .* must be a Figure, or an array of uint8"):
            Film(iter([bad]), 1)
    with pytest.raises(UserError, match=r"frame 2 \(5 x 8\) must be as large as the first \(6 x 8"):
        Film([good, good, good[1:]], 1)


def test_a_film_that_would_fill_the_memory_is_refused_before_it_does(monkeypatch):
    """Of ten thousand frames that are made one after the other few are."""
    monkeypatch.setattr(films, "MOST_PIXELS", 48 * 30)
    made = []

    def frames():
        for _ in range(10_000):
            made.append(1)
            yield np.zeros((6, 8), np.uint8)

    with pytest.raises(UserError, match=r"a film \(31 frames of 6 x 8\) must have at most 1,440"):
        Film(frames(), 25)
    assert len(made) == 31
