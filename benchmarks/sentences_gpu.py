"""Updates of `seq2seq` on sentences of unequal length on a GPU: captured by shape, and eager.

    EVERYNET_DATA=... python benchmarks/sentences_gpu.py     a section of RESULTS.md

English to German of Multi30k, words, batches of 128, lengths rounded up to a multiple of 8. The two
take turns from the same weights; the better of `TURNS` turns counts, without the updates in which
graphs are made. Their losses must agree to 1e-5.
"""

import sys
import time
from dataclasses import replace

import torch

import everynet
from everynet.training.device import choose, computing
from everynet.training.graph import Update
from everynet.training.loop import begin, train
from side_by_side import write

WARM, COUNTED, TURNS = 226, 452, 2  # updates: an epoch to make graphs in, two that are counted


def turn(pad_to: int, captured: bool) -> tuple[float, list[float], str]:
    """Target tokens a second, the losses, and how many graphs there were."""
    recipe = everynet.recipe(
        "seq2seq", data="multi30k-de", tokens="words", vocabulary=8000, batch_size=128,
        embedding=256, hidden_size=512, steps=WARM + COUNTED, pad_to=pad_to,
    )  # fmt: skip
    setup = replace(choose("cuda", "tf32"), capture=captured)
    with computing(setup):
        data = recipe.dataset().to(setup.device, setup.dtype)
        state = begin(recipe, data, setup)
        update = Update(recipe, state, data, setup)
        losses = []
        for record in train(recipe, state, data, update=update):
            losses.append(record.terms["cross_entropy"])
            if record.step == WARM:
                torch.cuda.synchronize()
                start = time.perf_counter()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    batches = [data.stored(step) for step in range(WARM, WARM + COUNTED)]
    tokens = sum(int(lengths.sum()) - len(lengths) for *_, lengths in batches)
    how = f"{len(update.graphs)} graphs; {update.uncaptured or 'all updates captured'}"
    return tokens / seconds, torch.stack(losses).tolist(), how


def main() -> int:
    lines = ["| | tokens/s | |", "|---|---|---|"]
    found = {}
    for pad_to, captured in [(8, True), (8, False), (1, False)] * TURNS:
        speed, losses, how = turn(pad_to, captured)
        best = max(speed, found.get((pad_to, captured), (0.0,))[0])
        found[pad_to, captured] = (best, losses, how)
    eager = found[8, False]
    for (pad_to, captured), (speed, losses, how) in found.items():
        name = f"lengths rounded to {pad_to}, {'captured' if captured else 'eager'}"
        apart = max(abs(a - b) for a, b in zip(losses, eager[1], strict=True))
        lines.append(f"| {name} | {speed:,.0f} | {how}; losses at most {apart:.1e} apart |")
    ratio = found[8, True][0] / eager[0]
    lines += ["", f"Captured over eager: {ratio:.2f} x. {torch.cuda.get_device_name()}, torch "
              f"{torch.__version__}, tf32."]  # fmt: skip
    title = "## Translation: sentences of unequal length on a GPU"
    write("sentences_gpu", [title, "\n".join(lines)])
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
