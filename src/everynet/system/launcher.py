"""How many processes a launcher started together, and which of them this one is.

torchrun, mpirun and srun say it in the environment; so may a person. Light enough for a verb
without torch.
"""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass

from everynet.system.errors import UserError
from everynet.system.wording import shown

LAUNCHERS = (
    ("WORLD_SIZE", "RANK", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"),
    ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"),
)
"""How many processes, which one, and which on its machine. The first that is there decides.

An interactive step has the SLURM_NTASKS of its allocation, though it is one process.
"""
ALONE = "set WORLD_SIZE=1 to train in one process"


@dataclass(frozen=True)
class Launch:
    """One process among those that were started together; alone it is rank 0 of 1."""

    rank: int = 0
    size: int = 1
    local_rank: int | None = None
    """Its number on its machine, where the launcher says it."""
    by: str = "WORLD_SIZE"
    """The variable that says how many there are."""

    def address(self) -> tuple[str, int]:
        """The machine and the port where the processes meet."""
        given = {name: os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT")}
        host, port = given["MASTER_ADDR"] or _first_machine(), given["MASTER_PORT"]
        if not host or not (port or "SLURM_STEP_NODELIST" in os.environ):
            lacks = "MASTER_PORT" if host else "MASTER_ADDR"
            raise UserError(
                f"{lacks} must be set, because {self.by} ({self.size}) says that several processes "
                "train together, and they must know where to meet: set MASTER_ADDR (the machine of "
                f"rank 0) and MASTER_PORT in each of them, start them with srun, or {ALONE}"
            )
        return host, _number("MASTER_PORT", 1, 65_535) if port else _port_of_step()


def read_launch() -> Launch:
    """What the launcher of this process says in the environment."""
    for size_name, rank_name, local_name in LAUNCHERS:
        there = os.environ.get(size_name), os.environ.get(rank_name) or size_name == "WORLD_SIZE"
        if not all(there):
            continue
        size = _number(size_name, 1, 65_536)
        if size == 1:
            return Launch()
        if not os.environ.get(rank_name):
            raise UserError(
                f"{rank_name} must be set, because {size_name} ({size}) says that several "
                f"processes train together: number them from 0 to {size - 1}, or {ALONE}"
            )
        local = _number(local_name, 0, size - 1) if os.environ.get(local_name) else None
        return Launch(_number(rank_name, 0, size - 1), size, local, size_name)
    return Launch()


def _number(name: str, least: int, most: int) -> int:
    value = os.environ[name].strip()
    if not (value.isdecimal() and value.isascii()) or not least <= int(value) <= most:
        raise UserError(
            f"{name} ({shown(value)}) must be a whole number from {least} to {most}, because "
            f"processes that train together find each other by it; set it so, or {ALONE}"
        )
    return int(value)


def _first_machine() -> str:
    """Where rank 0 of a step of srun is, which begins at gpu03 of gpu[03-04,9]; else empty."""
    if os.environ.get("SLURM_STEP_NUM_NODES") == "1":
        return "127.0.0.1"
    found = re.match(r"([\w.-]+)(?:\[(\w+))?", os.environ.get("SLURM_STEP_NODELIST", ""))
    return "".join(part or "" for part in found.groups()) if found else ""


def _port_of_step() -> int:
    """A port that the processes of one step agree on and others hardly have."""
    names = (os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return 10_000 + zlib.crc32("-".join(names).encode()) % 20_000
