"""Published weights by our names: order of rows, transposed matrices, what is refused."""

import pytest
import torch

from everynet.recipes.published import Published
from everynet.system.errors import UserError

TABLE = Published(
    model_type="small",
    sizes={"width": "hidden_size", "depth": "layers"},
    fixed={"activation": ("gelu", "gelu_new")},
    names={
        "layers.{n}.project.weight": ("h.{n}.query.weight", "h.{n}.key.weight"),
        "layers.{n}.output.weight": "h.{n}.out.weight",
        "norm.weight": "norm.weight",
        "head.weight": "head.weight",
    },
    layers="depth",
    transposed=frozenset({"layers.{n}.output.weight"}),
    optional=frozenset({"head.weight"}),
    prefix="model.",
    ignored=(".attn.bias",),
    tied={"lm_head.weight": "norm.weight"},
)


def stored(layers=2):
    found = {"model.norm.gamma": torch.randn(3)}
    for n in range(layers):
        found |= {f"model.h.{n}.{name}.weight": torch.randn(3, 3) for name in ("query", "key")}
        found[f"model.h.{n}.out.weight"] = torch.randn(3, 3)
    return found


def test_rows_follow_each_other_and_square_matrices_are_turned():
    given = stored()
    found = TABLE.rename(
        given | {"h.0.attn.bias": torch.ones(1), "lm_head.weight": given["model.norm.gamma"]}, 2
    )
    assert len(found) == 5
    both = torch.cat([given["model.h.1.query.weight"], given["model.h.1.key.weight"]])
    assert torch.equal(found["layers.1.project.weight"], both)
    assert torch.equal(found["layers.0.output.weight"], given["model.h.0.out.weight"].T)
    assert torch.equal(found["norm.weight"], given["model.norm.gamma"])  # of an older file


def test_another_layout_is_refused_by_the_tensor():
    given = stored()
    with pytest.raises(UserError, match=r"must hold the tensor h\.2\.query\.weight.*3 layers"):
        TABLE.rename(given, 3)
    with pytest.raises(UserError, match=r"holds the tensor h\.1\.query\.weight \[3, 3\], which"):
        TABLE.rename(given, 1)
    given["model.h.0.key.weight"] = torch.ones(3, 2)
    with pytest.raises(UserError, match=r"h\.0\.key\.weight \[3, 2\]\) must have the rows of h\.0"):
        TABLE.rename(given, 2)
    given["model.h.0.key.weight"] = torch.ones(3, 3)
    given["model.h.0.out.weight"] = torch.ones(3)
    with pytest.raises(UserError, match=r"h\.0\.out\.weight \[3\].* must be a matrix"):
        TABLE.rename(given, 2)


def test_sizes_come_from_the_configuration():
    config = {"model_type": "small", "width": 8, "depth": 2, "other": "x"}
    assert TABLE.settings(config, "c.json") == {"hidden_size": 8, "layers": 2}
    with pytest.raises(UserError, match=r"model_type large.*must be of small"):
        TABLE.settings(config | {"model_type": "large"}, "c.json")
    with pytest.raises(UserError, match=r"activation relu.*must have activation gelu"):
        TABLE.settings(config | {"activation": "relu"}, "c.json")
    with pytest.raises(UserError, match=r"hidden_size wide.*must be a number"):
        TABLE.settings(config | {"width": "wide"}, "c.json")
