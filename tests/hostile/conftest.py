from tests.cli.conftest import apart, call, refused

__all__ = ["apart", "call", "refused"]
