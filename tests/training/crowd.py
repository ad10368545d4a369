"""Fifty processes make a run folder at once: `python -m tests.training.crowd OUT` prints them."""

import os
import sys
from pathlib import Path

from everynet.system import files

COUNT = 50


def crowd(out):
    go, start = os.pipe()
    back, said = os.pipe()
    children = []
    for _ in range(COUNT):
        child = os.fork()
        if child == 0:
            os.read(go, 1)
            path = files.write_new_folder(out, "same", {"recipe.json": b"{}"})
            os.write(said, f"{path}\n".encode())
            os._exit(0)
        children.append(child)
    os.write(start, b"x" * COUNT)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(said)
    assert codes == [0] * COUNT
    with os.fdopen(back) as lines:
        print(lines.read(), end="")


if __name__ == "__main__":
    crowd(Path(sys.argv[1]))
