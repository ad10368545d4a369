"""Every block under every transformation of torch; `tests/blocks.py` has the tables."""

import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest
from torch import nn

from everynet.recipes import catalog
from tests import blocks

pytestmark = [
    pytest.mark.usefixtures("unchecked"),
    pytest.mark.filterwarnings("ignore"),  # of torch's own tracing
]


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """The zoo does not change meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "blocks", cache(catalog.blocks))
        yield


def is_slow(name, check):
    if check in ("torch.compile", "torch.export"):
        return name not in blocks.TRACED
    return name in blocks.LARGE and check != "float64"


CASES = [
    pytest.param(name, check, marks=[pytest.mark.slow] * is_slow(name, check))
    for name in blocks.networks()
    for check in blocks.checked(name)
    if (exempt := blocks.exempt(check, name)) is None or exempt.error is not None
]


@pytest.mark.parametrize(("name", "check"), CASES)
def test_every_block(name, check):
    exempt = blocks.exempt(check, name)
    if exempt is None:
        blocks.CHECKS[check](name)
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011 -- the table says which
        blocks.CHECKS[check](name)
    assert re.search(exempt.error, str(caught.value), re.S), exempt.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", blocks.SMOOTHED)
def test_second_derivatives_of_large_networks_without_kinks(name):
    with blocks.WithoutKinks():
        blocks.gradgradcheck(name)


def test_every_block_is_checked_or_said_to_be_no_network():
    modules = [n for n in blocks.files() if issubclass(blocks.block(n), nn.Module)]
    assert blocks.networks() == modules


def test_tables_name_blocks_that_are_there():
    known = set(blocks.networks())
    for exempt in blocks.EXCEPTIONS:
        assert set(exempt.names) <= known
        assert exempt.check in blocks.CHECKS
    for table in (blocks.MADE, blocks.GIVEN, blocks.LARGE, blocks.TRACED, blocks.NO_FORWARD):
        assert set(table) <= known


def test_the_page_is_fresh():
    path = Path(__file__).parent.parent / "docs" / "make_blocks.py"
    spec = importlib.util.spec_from_file_location("make_blocks", path)
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert maker.PAGE.read_text(encoding="utf-8") == maker.page()
