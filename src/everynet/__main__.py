"""`python -m everynet` and `torchrun -m everynet` are the command `everynet`."""

import sys

from everynet.cli import main

if __name__ == "__main__":
    sys.exit(main())
