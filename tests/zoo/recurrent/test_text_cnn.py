"""The text CNN against windows by hand, filler, what it finds, and the order that it cannot see."""

from dataclasses import replace

import pytest
import torch

from everynet import runs
from everynet.data.texts.tokens import Tokens
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.zoo.recurrent import context
from everynet.zoo.recurrent.classified import Words
from everynet.zoo.recurrent.text_cnn import EACH, SHOWN, CnnOrder, PhraseClassification, TextCNN

LENGTHS = torch.tensor([4, 7, 1])


def network(widths=(2, 3), filters=4, dropout=0.0):
    torch.manual_seed(0)
    words = Words(40, 3, word_dropout=0.0, dropout=0.0)
    return TextCNN(words, 2, widths=widths, filters=filters, dropout=dropout).double().eval()


# ------------------------------------------------------------------------------------- equations


@pytest.mark.covers("R19")
def test_the_network_is_its_equations():
    """Every window by hand: from the one that ends in the first word to that of the last."""
    model, x = network(), torch.randint(4, 40, (3, 7))
    for row, length in enumerate(LENGTHS.tolist()):
        vectors = model.words.vectors.weight[x[row, :length]]
        found = []
        for convolution in model.convolutions:
            width = convolution.kernel_size[0]
            zeros = torch.zeros(width - 1, 3).double()
            padded = torch.cat([zeros, vectors, zeros])
            matches = []
            for i in range(length + width - 1):
                window = padded[i : i + width]  # width size
                sums = (convolution.weight * window.T).sum((1, 2)) + convolution.bias
                matches.append(sums.clamp(min=0))
            found.append(torch.stack(matches).max(0).values)
        z = torch.cat(found) @ model.output.weight.T + model.output.bias
        torch.testing.assert_close(model(x, LENGTHS)[row], z)


@pytest.mark.covers("R19")
def test_filler_and_company_change_nothing():
    model, x = network(), torch.randint(4, 40, (3, 7))
    together = model(x, LENGTHS)
    longer = torch.cat([x, torch.randint(4, 40, (3, 5))], 1)
    torch.testing.assert_close(model(longer, LENGTHS), together, rtol=1e-12, atol=1e-12)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(x[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-12, atol=1e-12)


def test_a_window_of_nothing_but_filler_does_not_count():
    """Where every word speaks against a filter, the bias of an empty window would win."""
    model, x = network(), torch.randint(4, 40, (3, 7))
    with torch.no_grad():
        model.words.vectors.weight.abs_()
        for convolution in model.convolutions:
            convolution.weight.abs_().neg_()
            convolution.bias.fill_(1.0)
    together = model(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(x[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-12, atol=1e-12)


def test_a_phrase_is_found_in_any_place():
    """What stands in one window has one score, wherever the window is."""
    model = network(widths=(2,))
    fill, found = 5, []
    for place in range(2, 8):
        x = torch.full((1, 11), fill)
        x[0, place], x[0, place + 1] = 8, 9
        found.append(model(x, torch.tensor([11])))
    for one in found[1:]:
        torch.testing.assert_close(one, found[0])


@pytest.mark.covers("R19")
def test_words_that_change_places_beyond_a_window_change_nothing():
    """Dog and cat, with the same words around each: the maxima are those of the same windows."""
    model = network(widths=(2, 3))
    one = torch.tensor([[5, 5, 5, 8, 5, 5, 5, 9, 5, 5, 5]])
    other = torch.tensor([[5, 5, 5, 9, 5, 5, 5, 8, 5, 5, 5]])
    near = torch.tensor([[5, 5, 5, 8, 9, 5, 5, 5, 5, 5, 5]])
    lengths = torch.tensor([11])
    torch.testing.assert_close(model(one, lengths), model(other, lengths), rtol=0, atol=1e-12)
    assert not torch.allclose(model(one, lengths), model(near, lengths))


# ---------------------------------------------------------------------------------------- recipe


def test_the_phrases_of_a_filter_are_its_best_windows():
    recipe = replace(find("text-cnn").tiny(), filters=3)
    data = recipe.dataset()
    torch.manual_seed(0)
    model = recipe.model(data).eval()
    with torch.no_grad():
        drawn = recipe.picture_grams(model, data, []).axes[0]
    names = [tick.get_text() for tick in drawn.get_yticklabels()]
    assert len(names) == 2 * SHOWN
    assert names[0].startswith("bad ")
    texts = [text.get_text() for text in drawn.texts]
    assert len(texts) <= 2 * SHOWN * EACH, "fewer where a filter has no more that differ"
    weights = model.output.weight - model.output.weight.mean(0)
    x, lengths, _ = next(iter(data.valid))
    with torch.no_grad():
        maps = model.maps(x, lengths)
        strength = torch.cat([c.amax(2).mean(0) for c in maps])
        first = int((weights[0] * strength).argmax())
        width, c = model.widths[first // 3], maps[first // 3][:, first % 3]
    row = int(c.amax(1).argmax())
    start = int(c[row].argmax()) - width + 1
    words = x[row, max(0, start) : min(start + width, int(lengths[row]))].tolist()
    tokens = Tokens.of(data.spec)
    assert texts[0] == " ".join(tokens.vocabulary[word] for word in words)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"widths": ()}, r"widths \(\(\)\) must be one or more numbers from 1 up"),
        ({"widths": (3, 0)}, r"widths \(\(3, 0\)\) must be one or more"),
        ({"filters": 0}, r"filters \(0\) must be at least 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("text-cnn"), **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"widths": (3, 6)}, r"apart \(5\) must be at least 6, the widest filter"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        ({"widths": (0,)}, r"widths \(\(0,\)\) must be one or more"),
        ({"length": 15}, r"length \(15\) must be at least 3 \* apart \+ 1 = 16"),
        ({"apart": 0, "widths": ()}, r"widths \(\(\)\) must be one or more"),
    ],
)
def test_orders_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("word-order"), **fields).cells()["cnn"].dataset()


def test_apart_it_refuses():
    with pytest.raises(UserError, match=r"apart \(0\) must be at least 1"):
        CnnOrder(apart=0).dataset()


# ------------------------------------------------------------------------------- generated order


@pytest.mark.parametrize(("length", "apart"), [(16, 5), (24, 5), (10, 3), (4, 1)])
def test_no_window_holds_both_nor_one_and_an_end(length, apart):
    x, lengths, y = context.draw_ordered(length, apart, 500, torch.Generator().manual_seed(0))
    dog, cat = ((x == number).nonzero() for number in (4, 5))
    assert dog[:, 0].tolist() == cat[:, 0].tolist() == list(range(500)), "one of each"
    places = torch.stack([dog[:, 1], cat[:, 1]], 1)
    assert torch.equal((places[:, 0] > places[:, 1]).long(), y)
    assert (places.diff(dim=1).abs() >= apart).all()
    assert places.min() >= apart
    assert places.max() <= length - 1 - apart
    assert (lengths == length).all()
    others = x[(x != 4) & (x != 5)]
    assert (others.min(), others.max()) == (6, 15)
    if length > 3 * apart + 1:
        assert len(places.unique(dim=0)) > 2, "they are anywhere else"


def test_sentences_of_a_step_are_a_function_of_seed_and_step():
    one, other = (context.make_ordered(16, 5, 8, seed) for seed in (0, 1))
    assert torch.equal(one.train(3)[0], context.make_ordered(16, 5, 8, 0).train(3)[0])
    assert not torch.equal(one.train(3)[0], one.train(4)[0])
    assert not torch.equal(one.train(3)[0], other.train(3)[0])
    assert one.digest == other.digest, "what judges is the same"


# -------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("R19")
@pytest.mark.parametrize("name", ["text-cnn", "word-order"])
def test_learns(name, tmp_path):
    result = runs.run(find(name), tmp_path)
    assert result.reached, result.metrics


@pytest.mark.slow
@pytest.mark.covers("R19")
@pytest.mark.real_data
def test_learns_sst(tmp_path):
    result = runs.run(find("text-cnn-sst"), tmp_path)
    assert result.reached, result.metrics


def test_widths_and_filters_make_the_size():
    data = PhraseClassification().dataset()
    model = PhraseClassification(widths=(1, 2, 5), filters=7).model(data)
    assert model.output.in_features == 21
