"""What writes films: whichever kind the data of a recipe is, or none."""

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from everynet.data import kinds
from everynet.data.loading import check
from everynet.plot.film import Film
from everynet.runs.predict import Out, Predictor
from everynet.system import files
from everynet.system.errors import CannotWrite, UserError
from everynet.zoo.generative.gan import RECIPES as GANS
from everynet.zoo.reinforcement.dqn import RECIPES
from tests.plot.test_film import numbered


class Made(Predictor):
    """A run whose network makes a film."""

    def make_samples(self, settings):
        return Film(numbered(3), 2)


@pytest.mark.parametrize("recipe", [RECIPES["catch"], replace(GANS["gan-ring"], name="ring")])
def test_whichever_kind_writes_a_film_is_a_film(recipe, tmp_path):
    """One without a set, and one whose samples are rows of a table otherwise."""
    predictor = Made(tmp_path, recipe, {"kind": "table"} if recipe.name == "ring" else {})
    made, paths = predictor.write_samples({}, Out(str(tmp_path / "a.webp"), recipe.name))
    assert paths == [tmp_path / "a.webp", tmp_path / "a.png"]
    assert paths[0].read_bytes() == made.webp()
    assert paths[1].read_bytes() == made.strip()
    assert isinstance(predictor.sample({}), Film)


def test_a_film_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_move", full)
    with pytest.raises(CannotWrite, match="No space left"):
        kinds.writer("film").write(Film(numbered(2), 1), {}, tmp_path / "a")
    assert not [*tmp_path.iterdir()]


def test_what_the_kind_refuses(tmp_path):
    film = kinds.writer("film")
    with pytest.raises(UserError, match=r"--out \(.*a.gif\) must end in .webp, because a film was"):
        film.write(Film(numbered(2), 1), {}, tmp_path / "a.gif")
    with pytest.raises(UserError, match=r"sample \(a Figure\) must return a Film, because the"):
        film.write(Figure(), {}, tmp_path / "a")
    with pytest.raises(UserError, match="unknown kind 'film'"):
        check(tmp_path, kind="film")  # which no data is read as
