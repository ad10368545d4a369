"""`everynet`, `python -m everynet` and `torchrun -m everynet` are one command."""

import os
import sys

from everynet.system.signals import interruptible


def main() -> int:
    """Run one command and give its exit code."""
    with interruptible():
        from everynet.cli import in_a_hurry, main  # noqa: PLC0415 -- Ctrl-C may come meanwhile

        code = main()
        if in_a_hurry(code):
            os._exit(code)  # all is written; Python would take a second or more to take itself down
        return code


if __name__ == "__main__":
    sys.exit(main())
