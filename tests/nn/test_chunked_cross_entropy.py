import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, linear
from torch.utils._python_dispatch import TorchDispatchMode

from everynet.nn.chunked_cross_entropy import chunked_cross_entropy
from everynet.nn.losses import IGNORED


def inputs(tokens=13, hidden=5, vocab=11, dtype=torch.float64, seed=0):
    random = torch.Generator().manual_seed(seed)
    x, w, b = (
        torch.randn(shape, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((tokens, hidden), (vocab, hidden), (vocab,))
    )
    return x, w, torch.randint(vocab, (tokens,), generator=random), b


def plain(x, w, y, b=None):
    return cross_entropy(linear(x, w, b), y)


@settings(max_examples=25)
@given(st.integers(1, 20), st.integers(2, 30), st.integers(0, 25), st.booleans(), st.integers(0, 3))
def test_equals_torch_in_value_and_gradients(tokens, vocab, chunk, biased, ignored):
    x, w, y, b = inputs(tokens, vocab=vocab)
    y[: min(ignored, tokens - 1)] = IGNORED
    given = (x, w, b) if biased else (x, w)
    losses = [f(x, w, y, b if biased else None, *more) for f, *more in
              ((plain,), (chunked_cross_entropy, chunk))]  # fmt: skip
    torch.testing.assert_close(*losses, rtol=1e-10, atol=1e-12)
    wanted, found = (torch.autograd.grad(3 * loss, given) for loss in losses)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_gradcheck():
    x, w, y, b = inputs(tokens=5, hidden=3, vocab=4)
    y[2] = IGNORED
    assert torch.autograd.gradcheck(lambda *p: chunked_cross_entropy(*p[:2], y, p[2], 2), (x, w, b))


@pytest.mark.parametrize("biased", [True, False])
def test_second_derivatives_are_those_of_torch(biased):
    """Also of the loss alone, whose constant gradient once lost them without a word."""
    x, w, y, b = inputs()
    y[2] = IGNORED
    given = (x, w, b) if biased else (x, w)

    def of_penalty(form):
        loss = form(x, w, y, b if biased else None)
        first = torch.autograd.grad(loss, given, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), given)

    torch.testing.assert_close(of_penalty(chunked_cross_entropy), of_penalty(plain))


def test_each_token_has_its_gradient_by_torch_func():
    x, w, y, _ = (part.detach() for part in inputs())

    def each(form):
        return torch.vmap(torch.func.grad(lambda x, y: form(x[None], w, y[None])))(x, y)

    torch.testing.assert_close(each(chunked_cross_entropy), each(plain))


def test_two_words_in_closed_form():
    """A logistic regression: log(1 + e^-z) for the gap z between two logits."""
    x, w = torch.tensor([[2.0], [-1.0]]).double(), torch.tensor([[0.5], [-0.5]]).double()
    loss = chunked_cross_entropy(x, w, torch.tensor([0, 0]), chunk=1)
    torch.testing.assert_close(loss, (1 + torch.tensor([-2.0, 1.0]).double().exp()).log().mean())


def test_no_number_overflows_or_is_lost():
    """Logits of a thousand: the softmax in single precision would be 0 for the target."""
    x, w = torch.tensor([[1.0]]), torch.tensor([[1000.0], [-1000.0]])
    assert chunked_cross_entropy(x, w, torch.tensor([1])).item() == 2000.0


def test_all_targets_ignored_is_what_torch_gives():
    x, w, y, b = inputs()
    y[:] = IGNORED
    assert chunked_cross_entropy(x, w, y, b).isnan()
    assert plain(x, w, y, b).isnan()


class Largest(TorchDispatchMode):
    """The most numbers that any tensor made inside has, and the shapes that there are."""

    def __init__(self):
        super().__init__()
        self.numbers, self.shapes = 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.numbers = max(self.numbers, made.numel())
            self.shapes.add(made.shape)
        return made


@pytest.mark.parametrize("tokens", [128, 256, 512])
def test_never_holds_all_logits_however_many_tokens(tokens):
    x, w, y, b = inputs(tokens, hidden=4, vocab=100)
    with Largest() as seen:
        chunked_cross_entropy(x, w, y, b, chunk=16).backward()
    assert seen.numbers == max(16 * 100, tokens * 4)
    with Largest() as seen:
        plain(x, w, y, b).backward()
    assert seen.numbers == tokens * 100


def test_chunks_are_of_two_million_logits_or_64_tokens(monkeypatch):
    module = sys.modules["everynet.nn.chunked_cross_entropy"]  # nn has the function by that name
    monkeypatch.setattr(module, "LOGITS", 1000)
    for vocab, wanted in ((5, 125), (10, 84), (1000, 63)):  # 250 tokens in 2, 3 and 4 chunks
        x, w, y, _ = inputs(250, hidden=2, vocab=vocab)
        with Largest() as seen:
            chunked_cross_entropy(x, w, y)
        assert seen.numbers == wanted * vocab


def test_only_the_loss_is_computed_without_gradients():
    x, w, y, b = inputs(tokens=4, hidden=50)
    with torch.no_grad(), Largest() as seen:
        loss = chunked_cross_entropy(x, w, y, b)
    assert not loss.requires_grad
    assert w.shape not in seen.shapes, "no gradient of the weights was made"


def test_a_frozen_layer_gets_no_gradient():
    x, w, y, b = inputs()
    chunked_cross_entropy(x, w.detach(), y, b.detach()).backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(plain(x, w, y, b), x)[0])


def test_autocast_is_as_close_as_the_plain_form():
    x, w, y, b = inputs(64, hidden=32, vocab=50, dtype=torch.float32)
    exact = torch.autograd.grad(plain(x, w, y, b), (x, w, b))
    errors = []
    for loss in (plain, lambda *given: chunked_cross_entropy(*given, chunk=16)):
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(x, w, y, b)
        assert value.dtype == torch.float32
        found = torch.autograd.grad(value, (x, w, b))
        assert all(g.dtype == torch.float32 for g in found)
        errors.append([(f - e).norm() / e.norm() for f, e in zip(found, exact, strict=True)])
    for theirs, ours in zip(*errors, strict=True):
        assert ours < 1.5 * theirs
        assert ours < 0.02


def test_a_chunk_below_zero_is_refused():
    x, w, y, _ = inputs()
    with pytest.raises(ValueError, match=r"chunk \(-1\) must be at least 1 token, or 0"):
        chunked_cross_entropy(x, w, y, chunk=-1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_on_a_gpu_nothing_is_waited_for_and_a_graph_gives_the_same():
    x, w, y, b = (t.detach().cuda() for t in inputs(64, vocab=500, dtype=torch.float32))
    y[3] = IGNORED

    def step():
        given = [t.detach().requires_grad_() for t in (x, w, b)]  # leaves of the stream in use
        loss = chunked_cross_entropy(given[0], given[1], y, given[2], chunk=16)
        return loss.detach(), *torch.autograd.grad(loss, given)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        eager = step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            captured = step()
        graph.replay()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(captured, eager)
    torch.testing.assert_close(eager[0], plain(x, w, y, b))
