"""Two processes of everynet under torchrun, for tests that need no more than one command."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress


@contextmanager
def torchrun(*words):
    """The two at work; whatever happens, none of them outlives the test."""
    started = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
         "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "-m", "everynet", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()
