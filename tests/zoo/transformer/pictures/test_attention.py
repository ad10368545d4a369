import torch

from everynet.zoo.transformer.pictures.attention import rests_on


def test_the_share_of_the_head_that_rests_most_on_some_places():
    even = torch.full((3, 3), 1 / 3)
    before = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.1, 0.1], [0.0, 0.6, 0.4]])
    layers = [even[None], torch.stack([even, before])]
    places = torch.diag(torch.ones(2), -1).bool()  # the token before; the first has none
    torch.testing.assert_close(torch.tensor(rests_on(layers, places)), torch.tensor(0.7))
    torch.testing.assert_close(torch.tensor(rests_on(layers[:1], places)), torch.tensor(1 / 3))
