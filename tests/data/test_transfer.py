"""Constants on a device."""

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from everynet.data.transfer import constant


def test_a_constant_is_made_once_but_none_that_is_traced():
    """A tensor without memory, remembered, would be in every later call."""
    given = ((1.0, 2.5), torch.float32, torch.device("cpu"))
    with FakeTensorMode():
        assert isinstance(constant(*given), FakeTensor)
    made = constant(*given)
    assert made.tolist() == [1.0, 2.5]
    assert constant(*given) is made
