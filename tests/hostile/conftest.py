import pytest

from tests.cli.conftest import apart, call, refused

__all__ = ["apart", "call", "refused"]


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """One small run of each kind, to be copied."""
    from tests.hostile.generator import seed_runs

    return seed_runs(tmp_path_factory.mktemp("good"))
