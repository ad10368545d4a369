"""Let the process keep the memory that one step frees for the next one, and not more than that.

glibc gives free memory at the end of its heap back to the system, all but twice the size of the
largest block it has ever mapped and freed, and each page taken again costs a fault: a third to a
half of the time of a small convolutional network, in numpy as in torch. One block of the largest
size that counts (32 MB), freed before it is touched, makes that limit 64 MB. Other allocators do
not mind.

What is small and stays, as the metrics of a batch do, may lie at the beginning of a large block
that was free; the next large block does not fit there any more and is taken from the system. Going
through a set of large images, such holes grow to gigabytes unless they are given back now and then.

More than the machine has is not requested: it would be given, and the process killed when it is
written to.
"""

import ctypes
import math
import os
import re
from contextlib import suppress
from pathlib import Path

import numpy as np

LARGEST = 2**25 - 2**16  # bytes; glibc's DEFAULT_MMAP_THRESHOLD_MAX, less its own header


def keep_freed_memory() -> None:
    """Map one large block and free it, untouched."""
    np.empty(LARGEST, np.uint8)


def give_back_holes() -> None:
    """Give the system the pages that lie free between others, where the allocator can."""
    with suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


KNOWN = Path("/proc/meminfo")
LIMIT = Path("/sys/fs/cgroup/memory.max")
"""What a container may have in all, where it says so."""


def free() -> float:
    """Bytes that can be had before the system has to take them from others; all, if unknown."""
    found = [_limit()]
    with suppress(OSError, ValueError, AttributeError):  # where the system says how much it has
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):
        kilobytes = dict(re.findall(r"^(\w+): +(\d+) kB$", KNOWN.read_text(), re.MULTILINE))
        if "MemAvailable" in kilobytes:
            found.append(1024 * sum(int(kilobytes.get(n, 0)) for n in ("MemAvailable", "SwapFree")))
    return min(found)


def _limit() -> float:
    with suppress(OSError, ValueError):
        return int(LIMIT.read_text())
    return math.inf
