"""Decoding against enumeration, torch.multinomial and sets counted by hand."""

import itertools
import math

import pytest
import torch

from everynet.nn import decoding
from everynet.nn.decoding import Draw, beam_search, generate, take_likeliest, take_rows
from everynet.system.errors import UserError

END = 0


class History:
    """A network of which every next token depends on all tokens before, and on the row."""

    def __init__(self, vocabulary, seed, sharpness=1.5):
        generator = torch.Generator().manual_seed(seed)
        self.first = torch.randn(50, vocabulary, generator=generator, dtype=torch.double)
        self.table = sharpness * torch.randn(
            97, vocabulary, generator=generator, dtype=torch.double
        )

    def begin(self, rows):
        return self.first[rows], (rows, (31 * rows) % 97)  # a state of two parts

    def step(self, tokens, state):
        rows, key = state
        key = (5 * key + 7 * tokens + 3) % 97
        return self.table[key], (rows, key)

    def log_p(self, row, sequence):
        """The log-probabilities of the tokens of one sequence, one by one."""
        logits, state = self.begin(torch.tensor([row]))
        found = []
        for token in sequence:
            found.append(logits.log_softmax(1)[0, token].item())
            logits, state = self.step(torch.tensor([token]), state)
        return found


def exhaustive(network, row, vocabulary, length, alpha):
    """The best score of every sequence that ends within `length` tokens."""
    best = (-math.inf, ())
    for size in range(length):
        for body in itertools.product(range(1, vocabulary), repeat=size):
            sequence = (*body, END)
            score = sum(network.log_p(row, sequence)) / len(sequence) ** alpha
            best = max(best, (score, sequence))
    return best


def until_end(tokens):
    return (*itertools.takewhile(lambda token: token != END, tokens), END)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_a_beam_as_wide_as_all_sequences_is_an_exhaustive_search(alpha):
    vocabulary, length, rows = 3, 4, torch.arange(6)
    network = History(vocabulary, seed=3)
    tokens, scores = beam_search(
        network.step, *network.begin(rows), length, width=vocabulary**length, end=END, alpha=alpha
    )
    for row, found, score in zip(rows.tolist(), tokens.tolist(), scores.tolist(), strict=True):
        best, sequence = exhaustive(network, row, vocabulary, length, alpha)
        assert until_end(found) == sequence
        assert score == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_batch_is_searched_as_its_rows_are_one_by_one(width):
    network, rows = History(7, seed=1), torch.arange(9)
    together, scores = beam_search(network.step, *network.begin(rows), 12, width=width, end=END)
    for row in rows:
        alone, score = beam_search(
            network.step, *network.begin(row[None]), 12, width=width, end=END
        )
        assert torch.equal(alone[0], together[row])
        assert score[0] == scores[row]


def test_the_score_is_that_of_the_sequence():
    network, rows = History(7, seed=2), torch.arange(9)
    for alpha in (0.0, 0.7):
        found = beam_search(network.step, *network.begin(rows), 12, width=4, end=END, alpha=alpha)
        for row, tokens, score in zip(range(9), found[0].tolist(), found[1].tolist(), strict=True):
            sequence = until_end(tokens)
            log_p = network.log_p(row, sequence)
            assert score == pytest.approx(sum(log_p) / len(sequence) ** alpha)


def chain(p_end, first=0.9):
    """A network that ends with another probability at each place, and else goes on with 1 or 2."""
    rows = [[p, first * (1 - p), (1 - first) * (1 - p)] for p in p_end]
    shares = torch.tensor(rows, dtype=torch.double)

    def step(tokens, place):
        return shares.log()[place + 1], place + 1

    return step, shares.log()[:1], torch.tensor([0])


def test_the_search_goes_on_while_an_open_sequence_may_still_score_better():
    """Two sequences that end early do not end it: a long one is likelier by the token."""
    step, logits, state = chain([0.3, 0.3, 1e-9, 1e-9, 1e-9, 1 - 1e-9])
    tokens, _ = beam_search(step, logits, state, 6, width=2, end=END, alpha=1.0)
    assert tokens.tolist() == [[1, 1, 1, 1, 1, END]]
    tokens, score = beam_search(step, logits, state, 6, width=2, end=END, alpha=0.0)
    assert tokens.tolist() == [[END] * 6]
    assert score.item() == pytest.approx(math.log(0.3))


def test_a_sequence_may_catch_up_late():
    """After one token it scores -0.8 where the one that ended has -0.22, after ten -0.16."""
    step, logits, state = chain([0.8, *[1e-9] * 8, 1 - 1e-9], first=1 - 1e-9)
    tokens, score = beam_search(step, logits, state, 10, width=2, end=END)
    assert tokens.tolist() == [[*[1] * 9, END]]
    assert score.item() == pytest.approx(math.log(0.2) / 10, abs=1e-6)


def test_the_search_ends_as_soon_as_none_can():
    step, logits, state = chain([0.55] + [0.5] * 30)
    seen = []

    def counted(tokens, place):
        seen.append(int(place[0]))
        return step(tokens, place)

    beam_search(counted, logits, state, 30, width=3, end=END, alpha=0.0)
    assert seen == []


def test_a_sequence_that_never_ends_is_taken_only_where_none_does():
    shares = torch.tensor([[1e-300, 0.7, 0.3]], dtype=torch.double).log()
    shares[0, END] = -math.inf
    found, score = beam_search(
        lambda tokens, state: (shares.expand(len(tokens), 3), state),
        shares, torch.zeros(1), 4, width=2, end=END,
    )  # fmt: skip
    assert found.tolist() == [[1, 1, 1, 1]]
    assert score.item() == pytest.approx(math.log(0.7))


def test_greedy_takes_the_likeliest_token_until_the_end():
    network, rows = History(5, seed=4), torch.arange(8)
    tokens, total = generate(network.step, *network.begin(rows), 20, take_likeliest, end=END)
    for row in rows.tolist():
        sequence, (logits, state) = [], network.begin(torch.tensor([row]))
        while len(sequence) < 20 and END not in sequence:
            sequence.append(int(logits.argmax()))
            logits, state = network.step(logits.argmax(1), state)
        assert tokens[row, : len(sequence)].tolist() == sequence
        assert set(tokens[row, len(sequence) :].tolist()) <= {END}
        assert total[row].item() == pytest.approx(sum(network.log_p(row, sequence)))


def test_all_rows_ending_ends_the_loop():
    tokens, _ = generate(
        lambda tokens, state: (torch.tensor([[9.0, 0.0]]), state),
        torch.tensor([[0.0, 9.0]]), None, 50, take_likeliest, end=END,
    )  # fmt: skip
    assert tokens.tolist() == [[1, END]]


@pytest.mark.parametrize("ahead", [1, 3])
def test_tokens_are_those_of_multinomial(monkeypatch, ahead):
    """However many tokens the random numbers are drawn ahead."""
    network, rows = History(11, seed=5), torch.arange(4)
    draw = Draw(torch.Generator().manual_seed(8), temperature=0.7)
    if ahead > 1:
        monkeypatch.setattr(decoding, "AHEAD", ahead)
        draw._noise = [
            torch.empty(4, 11, dtype=torch.double).exponential_(generator=draw.generator)
            for _ in range(ahead)
        ]
    tokens, _ = generate(network.step, *network.begin(rows), 9, draw)
    generator, (logits, state) = torch.Generator().manual_seed(8), network.begin(rows)
    for t in range(9):
        token = torch.multinomial((logits / 0.7).softmax(1), 1, generator=generator)[:, 0]
        assert torch.equal(token, tokens[:, t])
        logits, state = network.step(token, state)


LOGITS = torch.tensor([[0.15, 0.5, 0.05, 0.3], [0.25, 0.25, 0.25, 0.25]]).log()


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, ({0, 1, 2, 3}, {0, 1, 2, 3})),
        ({"top_k": 1}, ({1}, {0, 1, 2, 3})),  # ties stay together
        ({"top_k": 2}, ({1, 3}, {0, 1, 2, 3})),
        ({"top_k": 9}, ({0, 1, 2, 3}, {0, 1, 2, 3})),
        ({"top_p": 0.49}, ({1}, {0, 1})),
        ({"top_p": 0.79}, ({1, 3}, {0, 1, 2, 3})),
        ({"top_p": 0.81}, ({0, 1, 3}, {0, 1, 2, 3})),
        ({"banned": [1]}, ({0, 2, 3}, {0, 2, 3})),
        ({"banned": [1], "top_k": 1}, ({3}, {0, 2, 3})),
        ({"temperature": 0.5, "top_p": 0.68}, ({1}, {0, 1, 2})),  # squares: 50 of 73 in 1
    ],
)
def test_what_may_be_drawn_is_counted_by_hand(settings, left):
    log_p = Draw(**settings).log_probabilities(LOGITS)
    assert tuple({*row.isfinite().nonzero()[:, 0].tolist()} for row in log_p) == left
    assert log_p.exp().sum(1).tolist() == pytest.approx([1, 1])
    kept = [log_p[0, token] for token in sorted(left[0])]
    power = 1 / settings.get("temperature", 1)
    assert [float(a - kept[0]) for a in kept] == pytest.approx(
        [power * float(LOGITS[0, b] - LOGITS[0, min(left[0])]) for b in sorted(left[0])], abs=1e-6
    )


def test_a_text_ends_at_a_stop():
    seen = []

    def stops(tokens):
        seen.append(tokens)
        return tokens[-2:] == [1, 1]

    tokens, _ = generate(
        lambda tokens, state: (torch.tensor([[0.0, 9.0]]), state),
        torch.tensor([[9.0, 0.0]]), None, 50, take_likeliest, stops=stops,
    )  # fmt: skip
    assert tokens.tolist() == [[0, 1, 1]]
    assert seen == [[0], [0, 1], [0, 1, 1]]


class Cache:
    """A state that is an object: indexed by rows, as a cache of keys is."""

    def __init__(self, keys):
        self.keys = keys

    def __getitem__(self, rows):
        return Cache(self.keys[rows])


def test_rows_of_a_state():
    rows, x = torch.tensor([2, 0, 0]), torch.randn(3, 4)
    a, (b, c) = take_rows((x, (x + 1, Cache(x + 2))), rows)
    assert torch.equal(a, x[rows])
    assert torch.equal(b, x[rows] + 1)
    assert torch.equal(c.keys, x[rows] + 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, r"temperature \(0.0\) must be above 0"),
        ({"temperature": math.inf}, r"temperature \(inf\) must be above 0"),
        ({"top_k": -1}, r"top_k \(-1\) must be at least 1, or 0 for all"),
        ({"top_p": 0.0}, r"top_p \(0.0\) must be above 0 and at most 1"),
        ({"top_p": 1.5}, r"top_p \(1.5\) must be above 0 and at most 1"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(UserError, match=message):
        Draw(**settings)


def test_a_beam_without_width():
    network = History(3, seed=0)
    with pytest.raises(UserError, match=r"a beam needs a width \(0\) of 1 or more"):
        beam_search(network.step, *network.begin(torch.arange(1)), 5, width=0, end=END)
