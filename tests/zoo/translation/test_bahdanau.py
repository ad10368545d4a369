"""Attention in translation: every equation by loops, padding, alignments, decoding."""

from dataclasses import replace

import pytest
import torch

from everynet.plot.style import OURS
from everynet.system.errors import UserError
from everynet.zoo.translation.bahdanau import (
    HOLD,
    RECIPES,
    Bahdanau,
    FixedContext,
    TiedBahdanau,
)
from everynet.zoo.translation.pictures.writing import attention_frames
from tests.plot.legible import faults

PAD, START, END = 0, 2, 3


def make(source=11, target=9, embedding=4, hidden=6):
    torch.manual_seed(0)
    return Bahdanau(source, target, embedding=embedding, hidden_size=hidden).double().eval()


def by_equations(net, x, before):
    """Equations (1) to (12) for one sentence, word by word; logits and attention."""
    units = net.initial.in_features
    cells = []
    for layer in (net.forwards, net.backwards):
        cell = torch.nn.GRUCell(layer.input_size, units).double()
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        cell.load_state_dict({name: getattr(layer, f"{name}_l0") for name in names})
        cells.append(cell)
    words = [net.source.weight[token] for token in x]
    zero = torch.zeros(units, dtype=torch.float64)
    ahead, back = [zero], [zero]
    for word in words:
        ahead.append(cells[0](word[None], ahead[-1][None])[0])
    for word in reversed(words):
        back.append(cells[1](word[None], back[-1][None])[0])
    back = back[:0:-1]
    h = [torch.cat([a, b]) for a, b in zip(ahead[1:], back, strict=True)]  # (1)
    s = torch.tanh(net.initial.weight @ back[0] + net.initial.bias)  # (2)
    w_r, w_z, w = net.from_token.weight.chunk(3)
    b_r, b_z, b = net.from_token.bias.chunk(3)
    c_r, c_z, c_s = net.from_context.weight.chunk(3)
    u_r, u_z = net.from_state.weight.chunk(2)
    u_o, c_o, v_o = net.readout.weight.split([units, 2 * units, w.shape[1]], 1)
    logits, attention = [], []
    for token in before:
        e = [
            net.score.output.weight[0]
            @ torch.tanh(net.score.query.weight @ s + net.score.key.weight @ one)
            for one in h
        ]  # (3)
        alpha = torch.stack(e).exp() / torch.stack(e).exp().sum()  # (4)
        c = sum(a * one for a, one in zip(alpha, h, strict=True))  # (5)
        y = net.target.weight[token]
        r = torch.sigmoid(w_r @ y + b_r + u_r @ s + c_r @ c)  # (6)
        z = torch.sigmoid(w_z @ y + b_z + u_z @ s + c_z @ c)  # (7)
        new = torch.tanh(w @ y + b + net.candidate.weight @ (r * s) + c_s @ c)  # (8)
        readout = u_o @ s + v_o @ y + c_o @ c + net.readout.bias  # (10)
        t = torch.maximum(readout[0::2], readout[1::2])  # (11)
        logits.append(net.output.weight @ t + net.output.bias)  # (12)
        attention.append(alpha)
        s = (1 - z) * s + z * new  # (9)
    return torch.stack(logits), torch.stack(attention)


def draw(length, tokens, seed=0):
    return torch.randint(4, tokens, (length,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("read", "said"), [(1, 1), (5, 3), (3, 6)])
@pytest.mark.covers("R30")
def test_the_network_is_its_equations(read, said):
    net, x = make(), draw(read, 11)
    before = torch.tensor([START, *draw(said - 1, 9, seed=1)])
    logits, attention = by_equations(net, x, before)
    given = x[None], torch.tensor([read]), before[None]
    torch.testing.assert_close(net(*given)[0], logits)
    found = net.align(*given)[0]
    torch.testing.assert_close(found, attention)
    torch.testing.assert_close(found.sum(1), torch.ones(said, dtype=torch.float64))


@pytest.mark.covers("R30")
def test_padding_and_the_other_sentences_of_a_batch_change_nothing():
    net, lengths = make(), torch.tensor([3, 6, 1])
    before = torch.cat([torch.full((3, 1), START), torch.randint(4, 9, (3, 4))], 1)
    x = torch.full((3, 6), 7)
    for row, length in enumerate(lengths):
        x[row, :length] = draw(int(length), 11, seed=row)
    together = net(x, lengths, before)
    attention = net.align(x, lengths, before)
    for row, length in enumerate(lengths):
        alone = net(x[row : row + 1, :length], lengths[row : row + 1], before[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone)
        assert not attention[row, :, length:].any()


def test_a_sentence_written_token_by_token_has_the_logits_of_teacher_forcing():
    net, lengths = make(), torch.tensor([3, 5])
    x, before = torch.randint(4, 11, (2, 5)), torch.randint(4, 9, (2, 4))
    state, found = net.begin(x, lengths), []
    for token in before.unbind(1):
        logits, state = net.step(token, state)
        found.append(logits)
    torch.testing.assert_close(torch.stack(found, 1), net(x, lengths, before))


def test_gradients_reach_every_weight():
    net = make()
    x, before = torch.randint(4, 11, (2, 3)), torch.randint(4, 9, (2, 2))
    names, weights = zip(*net.named_parameters(), strict=True)

    def loss(*values):
        made = torch.func.functional_call(
            net, dict(zip(names, values, strict=True)), (x, torch.tensor([3, 2]), before)
        )
        return made.square().mean()

    assert torch.autograd.gradcheck(loss, weights, fast_mode=True)


def make_tied(kind=TiedBahdanau):
    torch.manual_seed(0)
    return kind(9, embedding=4, hidden_size=6, dropout=0.0).double().eval()


def test_tied_tokens_are_one_matrix_scaled_by_the_root_of_its_size():
    net, x = make_tied(), draw(4, 9)
    before = torch.tensor([START, *draw(2, 9, seed=1)])
    plain = Bahdanau(9, 9, embedding=4, hidden_size=6).double().eval()
    plain.load_state_dict(net.state_dict(), strict=False)
    with torch.no_grad():
        net.bias.normal_()
        plain.source.weight.copy_(net.source.weight * 2)
        plain.target.weight.copy_(net.source.weight * 2)
        plain.output.weight.copy_(net.source.weight)
        plain.output.bias.copy_(net.bias)
    given = x[None], torch.tensor([4]), before[None]
    torch.testing.assert_close(net(*given), plain(*given))


def fixed_by_equations(net, x, before):
    """The logits with attention replaced by the two last states of the encoder."""
    forwards = net.forwards(net.source.weight[x][None] * 2)[0][0, -1]
    backwards = net.backwards(net.source.weight[x.flip(0)][None] * 2)[0][0, -1]
    c, s, logits = torch.cat([forwards, backwards]), net.initial(backwards).tanh(), []
    for token in before:
        y = net.source.weight[token] * 2
        logits.append(net.speak(s, c, y))
        s = net.advance(net.from_token(y)[None], s[None], c[None])[0]
    return torch.stack(logits)


@pytest.mark.covers("R18")
def test_a_fixed_context_is_the_last_states_of_both_directions_padded_or_not():
    net, lengths = make_tied(FixedContext), torch.tensor([3, 5])
    x, before = torch.randint(4, 9, (2, 5)), torch.randint(4, 9, (2, 4))
    found = net(x, lengths, before)
    for row in range(2):
        alone = fixed_by_equations(net, x[row, : lengths[row]], before[row])
        torch.testing.assert_close(found[row], alone)
    with pytest.raises(UserError, match=r"alignment and draw must be false, because FixedContext"):
        net.align(x, lengths, before)


# ------------------------------------------------------------------------------------------ film


def looks(drawn):
    """The tokens of the source that a frame shows, and how dark their ground is."""
    above = [text for text in drawn.axes[0].texts if text.get_position()[1] == 1.0]
    return [text.get_text() for text in above], [
        text.get_bbox_patch().get_alpha() for text in above
    ]


def test_a_film_writes_token_by_token_and_ends_with_the_last_row_of_the_attention():
    net, x, lengths = make(), torch.tensor([[4, 9, 5, 7]]), torch.tensor([4])
    outputs, _ = net.write(x, lengths, 6)
    alpha = net.align(x, lengths, net.shift(outputs))[0]
    written = [f"w{token}" for token in outputs[0].tolist()]
    frames = [*attention_frames(alpha, written, ["we", "saw", "the", "sea"])]
    assert len(frames) == len(written) >= 2
    for now, drawn in enumerate(frames):
        read, dark = looks(drawn)
        assert read == ["we", "saw", "the", "sea"]
        assert dark == pytest.approx(alpha[now].tolist())
        below = [text.get_text() for text in drawn.axes[0].texts if text.get_position()[1] == 0]
        assert below == written[: now + 1]
        lines = [line.get_linewidth() for line in drawn.axes[0].lines if line.get_color() == OURS]
        assert lines == pytest.approx([5 * share for share in alpha[now].tolist()])
    assert not faults(drawn)


def test_a_sentence_of_ones_own_is_filmed():
    recipe = replace(RECIPES["bahdanau"].tiny(), hidden_size=4, embedding=4)
    data = recipe.dataset()
    model = recipe.model(data).eval().requires_grad_(False)
    model.output.bias[END] = -9.0  # it goes on
    film = recipe.sample(model, data.spec, torch.Generator(), text="ab")
    assert len(film.frames) == 14 + HOLD
    assert (film.frames[0] != film.frames[1]).any()
    with pytest.raises(UserError, match=r"must fit on a line of 92 letters, because a film shows"):
        recipe.sample(model, data.spec, torch.Generator(), text="ab" * 25)
    assert RECIPES["seq2seq-multi30k"].writes == ""


def test_a_network_that_writes_nothing_has_one_frame():
    assert len([*attention_frames(torch.zeros(0, 2), [], ["a", "b"])]) == 1
