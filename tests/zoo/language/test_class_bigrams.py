import pytest
import torch

from everynet.system.errors import UserError
from everynet.zoo.language.class_bigrams import ClassBigrams, make_text


@pytest.fixture(scope="module")
def language():
    return ClassBigrams(50, classes=5)


def test_words_that_follow_are_a_distribution(language):
    words = torch.arange(50)
    p = language.log_probability(words, words).exp()
    torch.testing.assert_close(p.sum(1), torch.ones(50).double())
    assert torch.equal(p[7], p[12]), "words of one class are followed alike"


def test_within_a_class_it_is_the_law_of_zipf(language):
    p = language.log_probability(torch.tensor([3]), torch.arange(50)).exp()[0]
    assert (p[2] / p[7]).item() == pytest.approx(8 / 3)
    assert (p[0] / p[45]).item() == pytest.approx(46.0)


def test_a_text_has_the_probabilities_that_are_said(language):
    """Pairs of classes, and words within a class, within five standard errors."""
    text = language.sample_text(40_000, torch.Generator().manual_seed(1))
    c = language.class_of[text]
    for before in range(5):
        after = c[1:][c[:-1] == before]
        share = torch.bincount(after, minlength=5) / len(after)
        wanted = language.transitions[before]
        assert bool(
            ((share - wanted).abs() <= 5 * (wanted * (1 - wanted) / len(after)).sqrt()).all()
        )
    own = text[c == 2]
    share, wanted = torch.bincount(own, minlength=50)[2::5] / len(own), language.within_class[2::5]
    error = (wanted * (1 - wanted) / len(own)).sqrt()
    assert bool(((share - wanted).abs() <= 5 * error).all())


def test_the_perplexity_is_that_of_the_probabilities(language):
    text = torch.tensor([3, 14, 15, 9, 26])
    p = language.log_probability(text[:-1], text[1:]).diagonal().exp()
    assert language.perplexity(text) == pytest.approx(p.prod().item() ** (-1 / 4))


def test_the_data_are_pairs_of_neighbours_and_counts(language):
    data = language.data(300, batch_size=10, seed=3, held_out=20)
    x, y = data.splits["train"]
    assert torch.equal(x[1:], y[:-1])
    assert data.spec["counts"] == torch.bincount(y, minlength=50).tolist()
    again = language.data(300, batch_size=10, seed=4, held_out=20)
    assert torch.equal(again.splits["train"][0], x), "the text is the same whatever the seed"
    assert again.digest == data.digest
    assert torch.equal(make_text(language, 21, 1)[1:], data.splits["valid"][1])


def test_more_classes_than_words_are_refused():
    with pytest.raises(UserError, match=r"classes \(16\) must be from 2 to the 10 words"):
        ClassBigrams(10)
