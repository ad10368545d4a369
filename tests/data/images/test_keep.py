"""Which part of an image is kept: halves, shares, and what is refused."""

import pytest
import torch

from everynet.data.images.keep import keep_mask
from everynet.system.errors import UserError


def test_each_half_is_where_its_name_says():
    rows, columns = torch.arange(5)[:, None].expand(5, 4), torch.arange(4).expand(5, 4)
    expected = {"top": rows < 2, "bottom": rows > 2, "left": columns < 2, "right": columns > 1}
    for keep, mask in expected.items():
        assert torch.equal(keep_mask(keep, 5, 4), mask), keep


def test_a_number_is_the_share_of_pixels_and_the_generator_chooses_which():
    def draw(seed, keep="0.3"):
        return keep_mask(keep, 10, 20, torch.Generator().manual_seed(seed))

    assert draw(0).sum() == 60
    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
    often = torch.stack([draw(seed) for seed in range(400)]).double().mean(0)
    assert often.sub(0.3).abs().max() < 5 * (0.3 * 0.7 / 400) ** 0.5  # five standard errors


def test_without_a_generator_the_default_one_draws():
    torch.manual_seed(3)
    first = keep_mask("0.5", 8, 8)
    torch.manual_seed(3)
    assert torch.equal(first, keep_mask("0.5", 8, 8))


@pytest.mark.parametrize(
    ("keep", "size", "message"),
    [
        ("0", (8, 8), r"keep \(0\) hides every pixel of 8 x 8"),
        ("1.0", (8, 8), r"keep \(1.0\) hides no pixel of 8 x 8"),
        ("0.001", (8, 8), r"keep \(0.001\) hides every pixel of 8 x 8; give top, bottom"),
        ("top", (1, 8), r"keep \(top\) hides every pixel of 1 x 8"),
        ("tpo", (8, 8), r"keep \('tpo'\) must be top, .*did you mean top"),
        ("", (8, 8), r"keep \(''\) must be top"),
        ("1.5", (8, 8), r"keep \(1.5\) must lie between 0 and 1"),
        ("-0.5", (8, 8), "must lie between 0 and 1"),
        ("nan", (8, 8), "must lie between 0 and 1"),
    ],
)
def test_what_is_refused(keep, size, message):
    with pytest.raises(UserError, match=message) as raised:
        keep_mask(keep, *size)
    assert "\n" not in str(raised.value)
