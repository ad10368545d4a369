import pytest

from everynet.cli import main


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """Every command runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)


@pytest.fixture
def call(capsys):
    """Runs one command in this process: its exit code, what it printed, what it complained of."""

    def run(*words):
        code = main(words)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(call):
    """Runs one command that must fail in exactly one line, and gives that line."""

    def run(*words, code=2):
        got, out, error = call(*words)
        assert (got, out) == (code, ""), error
        assert error.startswith("everynet: ")
        assert error.endswith("\n")
        assert error.count("\n") == 1
        return error.removeprefix("everynet: ").rstrip("\n")

    return run
