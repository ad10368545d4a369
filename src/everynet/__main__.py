"""`everynet`, `python -m everynet` and `torchrun -m everynet` are one command."""

import sys

from everynet.system.signals import interruptible


def main() -> int:
    """Run one command and give its exit code."""
    with interruptible():
        from everynet.cli import main  # noqa: PLC0415 -- Ctrl-C may come while it is imported

        return main()


if __name__ == "__main__":
    sys.exit(main())
