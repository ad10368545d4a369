"""A process is killed while two train: how long it takes until the other has ended.

    python -m tests.training.lost OUT TIMES BUSY

Each time one of two is killed, now rank 0, now rank 1; every fourth pair is torchrun's. So many
other processes are kept busy meanwhile. It prints one JSON line a time.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from everynet.__main__ import main
from tests.runs import recipes
from tests.runs.forks import ended, fork

WORDS = ["run", f"{recipes.__file__}:endless", "--device", "cpu", "--quiet", "--out"]


def by_hand(out):
    """Two forks of this process, each of which runs the command."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    children = []
    for rank in (0, 1):
        where = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}

        def command(where=where):
            os.environ |= {name: str(value) for name, value in where.items()}
            errors = os.open(out.with_suffix(".errors"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(errors, 2)
            sys.argv = ["everynet", *WORDS, str(out)]
            return main()

        children.append(fork(command))
    return children, children, ended


def by_torchrun(out):
    """torchrun, which ends when both have: its processes by rank."""
    with out.with_suffix(".errors").open("w") as errors:
        agent = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
             "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "-m", "everynet", *WORDS,
             str(out)], stdout=errors, stderr=errors,
        )  # fmt: skip
    wait_for(out, lambda: agent.poll() is None)
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    return [*map(int, children)], [agent.pid], lambda _: agent.wait()


def wait_for(out, alive=lambda: True):
    deadline = time.monotonic() + 120
    while not [*out.glob("endless-*/checkpoints/1*")]:
        assert alive(), out.with_suffix(".errors").read_text()
        assert time.monotonic() < deadline, out.with_suffix(".errors").read_text()
        time.sleep(0.02)


def is_at_work(process):
    """Whether a process of another's has not ended yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def trial(number, out, draw):
    rank, torchrun = number % 2, number % 4 == 3
    children, _, wait = (by_torchrun if torchrun else by_hand)(out)
    wait_for(out)
    time.sleep(draw.uniform(0, 0.5))
    os.kill(children[rank], signal.SIGKILL)
    begun = time.monotonic()
    while torchrun and is_at_work(children[1 - rank]):  # its agent takes seconds of its own
        time.sleep(0.02)
    seconds = time.monotonic() - begun if torchrun else 0.0
    code = wait(children[1 - rank])
    seconds = seconds or time.monotonic() - begun
    if not torchrun:
        ended(children[rank])
    said = (
        f"rank {1 - rank} stops: rank {rank} was killed" in out.with_suffix(".errors").read_text()
    )
    way = "torchrun" if torchrun else "by hand"
    return {"way": way, "killed": rank, "seconds": round(seconds, 2), "code": code, "named": said}


def lose(out, times, busy):
    draw, load = random.Random(1), []
    for _ in range(busy):
        load.append(os.fork())
        if load[-1] == 0:
            while True:
                pass
    try:
        for number in range(times):
            print(json.dumps(trial(number, out / str(number), draw)), flush=True)
    finally:
        for child in load:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    lose(out, int(sys.argv[2]), int(sys.argv[3]))
