import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.kernels.perceptron import perceptron, perceptron_torch


@given(seed=st.integers(0, 10_000), samples=st.integers(1, 12), features=st.integers(1, 4))
@settings(max_examples=50)
def test_the_two_forms_make_the_same_updates(seed, samples, features):
    """Whole numbers are added exactly, so that not even a tie can be decided differently."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randint(-3, 4, (samples, features), generator=random).double()
    t = torch.randint(2, (samples,), generator=random)
    loop, whole = perceptron(x, t, 1.0, 20, 5), perceptron_torch(x, t, 1.0, 20, 5)
    assert loop[1:5] == whole[1:5]
    assert torch.equal(loop.weight, whole.weight)
    torch.testing.assert_close(loop.norms, whole.norms)


def test_updates_by_hand():
    """Two mistakes in the first pass, one in the second, two in the third; 0 is answered at 0."""
    x, t = torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([1, 0])
    first = perceptron(x, t, 0.5, 1)
    assert first.weight.tolist() == [0.5, 0.5]  # 0.5 (1, 2), less 0.5 (0, 1)
    assert (first.bias, first.mistakes, first.passes, first.converged) == (0.0, 2, 1, False)
    second = perceptron(x, t, 0.5, 2)
    assert second.weight.tolist() == [0.5, 0.0]  # (1, 2) is right, (0, 1) is not
    assert (second.bias, second.mistakes, second.passes) == (-0.5, 3, 2)
    last = perceptron(x, t, 0.5, 9, record=2)
    assert last.weight.tolist() == [1.0, 0.5]
    assert (last.bias, last.mistakes, last.passes, last.converged) == (-0.5, 5, 4, True)
    torch.testing.assert_close(last.norms, torch.tensor([1.5**0.5, 0.5**0.5]).double())
