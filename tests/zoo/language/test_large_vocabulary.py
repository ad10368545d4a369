import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch.nn.functional import cross_entropy, linear

from everynet.data.draws import Share
from everynet.nn.sampled_softmax import log_uniform, partitions
from everynet.recipes.experiment import Table
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.training.loop import begin, train
from everynet.zoo.language.class_bigrams import ClassBigrams
from everynet.zoo.language.large_vocabulary import (
    CLASSES,
    KNOWN,
    RECIPES,
    WAYS,
    LargeVocabulary,
    gradient_error,
    slope,
    spearman,
    time_updates,
)
from everynet.zoo.language.log_bilinear import (
    FullSoftmax,
    LogBilinear,
    NoiseContrastive,
    PartitionedRows,
    PartitionedSoftmax,
    SampledLogBilinear,
    SampledSoftmax,
    UncorrectedSoftmax,
)
from tests.zoo.cells import cell

WHOLE = Share()
SMALL = {"vocabulary": 60, "tokens": 400, "held_out": 30, "hidden_size": 4, "batch_size": 20}


def counts(words=60):
    return torch.arange(words, 0, -1)


# ------------------------------------------------------------------------------------- networks


def test_scores_are_products_of_vectors_and_a_bias():
    model = LogBilinear(counts(), 4).double()
    x = torch.tensor([3, 3, 59])
    wanted = model.inputs[x] @ model.weight.T + model.bias
    torch.testing.assert_close(model(x), wanted)


def test_biases_begin_at_the_frequencies_and_a_word_never_seen_at_the_rarest():
    bias = LogBilinear(torch.tensor([7, 0, 1]), 2).bias
    torch.testing.assert_close(bias.exp(), torch.tensor([8.0, 1.0, 2.0]) / 11)


def test_the_objective_of_all_words_is_their_cross_entropy_and_so_the_perplexity():
    recipe = FullSoftmax(**SMALL)
    model = recipe.model(recipe.dataset()).double()
    x, y = recipe.dataset().train(0)
    loss = recipe.objective(model, (x, y))["loss"]
    wanted = cross_entropy(linear(model.inputs[x], model.weight, model.bias), y)
    torch.testing.assert_close(loss, wanted)
    found = recipe.summarise(recipe.metrics(model, (x, y)))
    assert found["perplexity"] == pytest.approx(math.exp(wanted.item()))


@pytest.mark.covers("R35")
def test_with_all_words_as_candidates_learning_is_that_of_the_full_softmax():
    """Step for step, in double precision: losses, and every weight at the end."""
    ended = []
    for recipe in (
        FullSoftmax(**SMALL, steps=8, lr=0.3),
        SampledSoftmax(**SMALL, steps=8, lr=0.3, samples=60),
        UncorrectedSoftmax(**SMALL, steps=8, lr=0.3, samples=60),
    ):
        data = recipe.dataset()
        state = begin(recipe, data)
        state.model.double()
        losses = [record.terms["loss"].item() for record in train(recipe, state, data)]
        ended.append((losses, dict(state.model.named_parameters())))
    for losses, weights in ended[1:]:
        assert losses == pytest.approx(ended[0][0], rel=1e-9)
        for name, weight in weights.items():
            torch.testing.assert_close(weight, ended[0][1][name], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "way", [FullSoftmax, SampledSoftmax, NoiseContrastive, PartitionedSoftmax, UncorrectedSoftmax]
)
def test_every_way_learns_and_touches_no_row_that_it_did_not_read(way):
    more = {PartitionedSoftmax: {"tau": 40}, FullSoftmax: {}}.get(way, {"samples": 10})
    recipe = way(**SMALL, steps=3, lr=0.3, **more)
    data = recipe.dataset()
    state = begin(recipe, data)
    before = {n: p.detach().clone() for n, p in state.model.named_parameters()}
    for _ in train(recipe, state, data):
        pass
    moved = {n: (p != before[n]).view(60, -1).any(1) for n, p in state.model.named_parameters()}
    read = torch.cat([data.train(n)[0] for n in range(3)]).unique()
    assert torch.equal(moved["inputs"].nonzero()[:, 0], read)
    assert bool(moved["weight"].all()) == (way is FullSoftmax)


def test_candidates_are_drawn_by_the_frequencies_of_the_training_text():
    model = SampledLogBilinear(counts(), 4, samples=6)
    pi = model.candidates.log_expected.exp()
    assert pi.sum().item() == pytest.approx(6, rel=1e-5)
    assert (pi[0] / pi[59]).item() == pytest.approx(60, rel=1e-4)


# ------------------------------------------------------------------------------------- parts


@pytest.mark.covers("R34")
def test_batches_come_from_one_part_each_and_its_words_cover_their_targets():
    text = ClassBigrams(60).sample_text(601, torch.Generator().manual_seed(0))
    split = (text[:-1], text[1:])
    parts = tuple(partitions(split[1], 30, unit=20))
    sampler = PartitionedRows(parts)
    steps = sampler.steps_per_epoch(split, 20)
    assert steps == 30
    assert len(parts) > 2
    seen, order = [], []
    for step in range(steps):
        x, y, words = sampler.batch(split, 20, 5, step, WHOLE)
        assert set(y.tolist()) <= set(words.tolist())
        assert len(words) <= 30
        order.append(next(n for n, part in enumerate(parts) if part.words is words))
        seen += list(zip(x.tolist(), y.tolist(), strict=True))
        again = sampler.batch(split, 20, 5, step, WHOLE)
        assert all(map(torch.equal, (x, y, words), again))
    assert sorted(seen) == sorted(zip(*(t.tolist() for t in split), strict=True)), "each once"
    assert order != sorted(order), "parts take turns"
    other = sampler.batch(split, 20, 5, steps, WHOLE)
    assert not torch.equal(other[1], sampler.batch(split, 20, 5, 0, WHOLE)[1])


def test_processes_share_a_batch():
    text = ClassBigrams(60).sample_text(201, torch.Generator().manual_seed(0))
    split = (text[:-1], text[1:])
    sampler = PartitionedRows(tuple(partitions(split[1], 30, unit=20)))
    whole = sampler.batch(split, 20, 0, 3, WHOLE)[1]
    halves = [sampler.batch(split, 20, 0, 3, Share(rank, 2))[1] for rank in range(2)]
    assert torch.equal(torch.cat(halves), whole)


# ------------------------------------------------------------------------------------- the law


def test_ranks_are_those_of_scipy():
    random = torch.Generator().manual_seed(0)
    a, b = torch.randn(3, 40, generator=random), torch.randn(3, 40, generator=random)
    b = b + a
    wanted = sum(stats.spearmanr(*rows).statistic for rows in zip(a, b, strict=True)) / 3
    assert spearman(a, b) == pytest.approx(wanted)


def test_a_slope_is_found_whatever_the_constant_of_a_context():
    x = torch.randn(4, 30, generator=torch.Generator().manual_seed(0)).double()
    y = 0.7 * x + torch.arange(4.0).double()[:, None]
    assert slope(y, x) == pytest.approx(0.7)


def perfect(offset=0.0, correct=0.0):
    """A network of the small language whose scores are log P - correct log pi + offset."""
    recipe = RECIPES["large-vocabulary"]
    language, words = ClassBigrams(recipe.known, *CLASSES), torch.arange(recipe.known)
    model = SampledLogBilinear(counts(recipe.known), language.classes, recipe.known // 10).double()
    with torch.no_grad():
        model.inputs.copy_(torch.eye(8)[language.class_of])
        model.weight.copy_(language.transitions.log().T[language.class_of])
        model.bias.copy_(
            language.within_class.log() + offset - correct * model.candidates.log_expected
        )
    torch.testing.assert_close(
        model(words).detach() - offset + correct * model.candidates.log_expected,
        language.log_probability(words, words),
    )
    return model


def table(networks, **perplexities):
    cells = {name: cell(network=network) for name, network in networks.items()}
    for name in WAYS:
        cells[name] = cell(valid={"perplexity": [perplexities.get(name, 100.0)]})
    return Table(cells, {"errors": torch.tensor([[0.4, 0.2, 0.0]] * 3)})


@pytest.mark.covers("R34", "R35")
def test_figures_of_networks_that_know_the_truth():
    networks = {
        "corrected": perfect(offset=3.0),
        "uncorrected": perfect(correct=1.0),
        "contrast": perfect(),
    }
    found = RECIPES["large-vocabulary"].metrics(table(networks, sampled=110.0))
    assert found["ratio_sampled"] == pytest.approx(1.1)
    assert found["ratio_partitioned"] == 1.0
    assert found["rank_corrected"] == pytest.approx(1.0, abs=1e-6)
    assert found["rank_contrast"] == pytest.approx(1.0, abs=1e-6)
    assert found["rank_uncorrected"] < 0.95
    assert found["slope_corrected"] == pytest.approx(0.0, abs=1e-6)
    assert found["slope_uncorrected"] == pytest.approx(1.0, abs=1e-6)
    assert found["log_z_contrast"] == pytest.approx(0.0, abs=1e-6)
    assert found["error_falls"] == 1.0
    assert found["error_of_all"] == 0.0
    off = RECIPES["large-vocabulary"].metrics(table({**networks, "contrast": perfect(offset=-2.0)}))
    assert off["log_z_contrast"] == pytest.approx(2.0, abs=1e-6)


def test_the_floor_is_the_perplexity_of_the_truth_on_the_text_that_validates():
    recipe = replace(
        RECIPES["large-vocabulary"], vocabulary=300, samples=30, held_out=400, tokens=4096
    )
    language = ClassBigrams(300)
    pairs = [*recipe.cells()["full"].dataset().valid]
    x, y = (torch.cat(part) for part in zip(*pairs, strict=True))
    nats = -language.log_probability(x, torch.arange(300)).gather(1, y[:, None])
    assert recipe.perplexity_floor() == pytest.approx(nats.mean().exp().item(), rel=1e-5)
    model = RECIPES["large-vocabulary"]
    networks = {name: perfect() for name in KNOWN}
    monkeyed = model.metrics(table(networks, full=50.0))
    assert monkeyed["perplexity_full"] == 50.0
    assert monkeyed["perplexity_floor"] == pytest.approx(model.perplexity_floor())


@pytest.mark.covers("R34")
def test_the_gradient_of_all_words_has_no_error():
    random = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 3, generator=random).double() for n in (8, 20))
    layer = (x, weight, torch.zeros(20).double(), torch.randint(20, (8,), generator=random))
    q = log_uniform(20)
    assert gradient_error(q, 20, layer, random) < 1e-10
    assert gradient_error(q, 5, layer, random) > gradient_error(q, 15, layer, random) > 0.01


def test_every_way_is_timed():
    with torch.random.fork_rng(devices=[]):
        found = time_updates(200, 64, 16, torch.Generator().manual_seed(0))
    assert found.keys() >= {"full", "full, in chunks", "adaptive", *(set(WAYS) - {"full"})}
    assert all(0 <= seconds < 10 for seconds in found.values())


def test_cells_differ_in_the_way_they_learn_alone():
    cells = RECIPES["large-vocabulary"].cells()
    assert [*cells] == [*WAYS, *KNOWN]
    kinds = [type(cell) for cell in cells.values()]
    assert kinds == [
        FullSoftmax,
        SampledSoftmax,
        NoiseContrastive,
        PartitionedSoftmax,
        *KNOWN.values(),
    ]
    assert len({(c.vocabulary, c.steps, c.lr, c.seed) for n, c in cells.items() if n in WAYS}) == 1
    parts = cells["partitioned"]
    assert parts.steps <= parts.dataset().steps_per_epoch, "each word is learned from once"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"samples": 0}, r"samples \(0\) must be from 1 to vocabulary"),
        ({"samples": 30_000}, r"samples \(30000\) must be from 1 to vocabulary"),
        ({"tau": 10}, r"tau \(10\) must be at least batch_size"),
        ({"tokens": 100}, r"tokens \(100\) must be at least 4 batches"),
        ({"known": 20}, r"known \(20\) must be at least 160"),
        ({"known_tokens": 1}, r"known_tokens \(1\) must be at least 512"),
        ({"known_steps": 0}, r"known_steps \(0\) must be at least 1"),
        ({"held_out": 0}, r"held_out \(0\) must be at least 1"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        ({"sizes": (100,)}, r"sizes \(\(100,\)\) must be two or more, each at least 100"),
    ],
)
def test_bad_settings_are_refused(changed, said):
    with pytest.raises(UserError, match=said):
        LargeVocabulary(**changed)


def test_a_training_by_rows_refuses_what_would_touch_all_of_them():
    for name in ("clip", "clip_value", "weight_decay"):
        with pytest.raises(UserError, match=rf"{name} \(1.0\) must be 0, because it would change"):
            FullSoftmax(**{name: 1.0})
    with pytest.raises(UserError, match=r"unknown optimizer 'adam'; did you mean"):
        FullSoftmax(optimizer="adam")


@pytest.mark.slow
@pytest.mark.covers("R34", "R35")
def test_the_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["large-vocabulary"]
    result = run(replace(recipe), tmp_path, device="cpu")
    assert all(goal.reached(result.metrics) for goal in recipe.goals())
