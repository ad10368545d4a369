"""GPU memory that runs out in a run, which goes on with less: `python tests/cuda/memory.py`."""

import re
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from everynet import runs
from everynet.data.dataset import Data
from everynet.recipes.training import Training
from everynet.system.errors import UserError

ROOM = 2 << 30  # bytes that this process may take


@dataclass(frozen=True, kw_only=True)
class Wide(Training):
    """A network whose hidden layer takes `batch_size` x `width` x 4 bytes several times over."""

    steps: int = 8
    batch_size: int = 16
    eval_every: int = 4
    save_every: int = 2
    width: int = 1 << 20
    grows: bool = True
    """Whether batches need sixteen times as much from step 5 on."""

    def dataset(self) -> Data:
        x = torch.randn(4000, 4, generator=torch.Generator().manual_seed(1))
        splits = {split: (x, (x[:, 0] > 0).long()) for split in ("train", "valid", "test")}
        return Data(splits=splits, spec={"name": "noise"}, seed=self.seed,
                    batch_size=self.batch_size, digest="noise")  # fmt: skip

    def model(self, data: Data) -> nn.Module:
        return nn.Sequential(nn.Linear(4, self.width), nn.ReLU(), nn.Linear(self.width, 2))

    def step(self, state, batch):
        if self.grows and state.step >= 5:
            batch = tuple(tensor.repeat_interleave(16, 0) for tensor in batch)
        return super().step(state, batch)

    def objective(self, model, batch):
        return {"cross_entropy": cross_entropy(model(batch[0]), batch[1])}


def check(name, good):
    print(f"{'ok' if good else 'FAILED'}: {name}")
    return not good


def main():
    """Run out in an update, go on with less; run out in an evaluation, which helps itself."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(ROOM / total)
    out, failed, line = Path(tempfile.mkdtemp()), 0, ""
    recipe = Wide(name="wide")
    try:
        runs.run(recipe, out / "update", device="cuda", show=True)
    except UserError as error:
        line = str(error)
    print(line)
    (folder,) = (out / "update").iterdir()
    failed += check("one line", "\n" not in line)
    failed += check("says where", line.startswith("memory ran out in update 6 with batch_size 16"))
    failed += check("saved at step 4", "the run is saved at step 4" in line)
    less = int((re.findall(r"batch_size=(\d+)\Z", line) or ["0"])[0])
    failed += check("half of it", less == 8)
    smaller = replace(recipe, batch_size=1)
    result = runs.resume(smaller, folder, show=True)
    failed += check("it goes on", bool(result.metrics))
    noted = "from step 4 on: batch_size 1 instead of 16" in (folder / "card.md").read_text()
    failed += check("the card says so", noted)
    free = torch.cuda.memory_allocated() < ROOM // 2
    failed += check("memory is free again", free)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
