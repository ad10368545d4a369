"""Updates of translators on sentences of unequal length on a GPU: captured by shape, and eager.

    EVERYNET_DATA=... python benchmarks/sentences_gpu.py     a section of RESULTS.md

English to German of Multi30k, batches of 128. Captured, eager and a plain loop (the same network
and batches, clipped, fused Adam, no trainer) take turns from the same weights; the better of
`TURNS` turns counts, without the updates in which graphs are made. Losses of captured and eager
updates are compared at every update.
"""

import functools
import sys
import time
from dataclasses import replace
from typing import Any

import torch

import everynet
from everynet.system.seeds import mix
from everynet.training.device import choose, computing
from everynet.training.graph import Update
from everynet.training.loop import begin, train
from side_by_side import write

WARM, COUNTED, TURNS = 226, 226, 2  # updates: an epoch to make graphs in, one that is counted
NETWORKS = {
    "seq2seq": {
        "data": "multi30k-de", "tokens": "words", "vocabulary": 8000, "batch_size": 128,
        "embedding": 256, "hidden_size": 512,
    },
    "transformer-multi30k": {"ema": 0.0},
}  # fmt: skip


@functools.cache
def dataset(name: str, pad_to: int) -> tuple[Any, Any]:
    """The recipe and its data, read once."""
    recipe = everynet.recipe(name, steps=WARM + COUNTED, pad_to=pad_to, **NETWORKS[name])
    return recipe, recipe.dataset()


def turn(name: str, pad_to: int, how: str, precision: str) -> tuple[float, list[float], str]:
    """Target tokens a second, the losses, and how many graphs there were."""
    recipe, data = dataset(name, pad_to)
    setup = replace(choose("cuda", precision), capture=how == "captured")
    with computing(setup):
        data = data.to(setup.device, setup.dtype)
        state = begin(recipe, data, setup)
        update = Update(recipe, state, data, setup)
        steps = train(recipe, state, data, update=update)
        records = steps if how != "plain loop" else loop(recipe, state, data, precision)
        losses = []
        for record in records:
            losses.append(record.terms["cross_entropy"] if how != "plain loop" else record)
            if len(losses) == WARM:
                torch.cuda.synchronize()
                start = time.perf_counter()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    batches = [data.stored(step) for step in range(WARM, WARM + COUNTED)]
    tokens = sum(int(lengths.sum()) - len(lengths) for *_, lengths in batches)
    graphs = f"{len(update.graphs)} graphs; {update.uncaptured or 'all updates captured'}"
    return tokens / seconds, torch.stack(losses).tolist(), graphs if how == "captured" else ""


def loop(recipe, state, data, precision):
    """The same updates as one writes them by hand."""
    model = state.model
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr, fused=True)
    model.train()
    for step in range(recipe.steps):
        torch.default_generator.manual_seed(mix(recipe.seed, step))
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = recipe.objective(model, data.train(step))["cross_entropy"]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip or 1.0)
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * recipe.rate(step, ())
        optimizer.step()
        yield loss.detach()


def main() -> int:
    if not torch.cuda.is_available():
        print("sentences_gpu.py is left out: there is no GPU here")
        return 0
    lines = ["| | tokens/s | |", "|---|---|---|"]
    for name in sys.argv[1:] or NETWORKS:
        for precision in ("tf32", "bf16") if "transformer" in name else ("tf32",):
            ways = [(8, "captured"), (8, "eager"), (8, "plain loop")]
            found: dict[tuple[int, str], tuple[float, list[float], str]] = {}
            for pad_to, how in ways * TURNS:
                speed, losses, graphs = turn(name, pad_to, how, precision)
                best = max(speed, found.get((pad_to, how), (0.0,))[0])
                found[pad_to, how] = (best, losses, graphs)
            eager = found[8, "eager"]
            for (pad_to, how), (speed, losses, graphs) in found.items():
                apart = max(abs(a - b) for a, b in zip(losses, eager[1], strict=True))
                note = f"{graphs}; losses at most {apart:.1e} from eager" if graphs else ""
                ratio = speed / found[8, "plain loop"][0]
                label = f"`{name}`, {precision}, lengths rounded to {pad_to}, {how}"
                lines.append(f"| {label} | {speed:,.0f} | {ratio:.2f} x the plain loop; {note} |")
                print(lines[-1], flush=True)
    lines += ["", f"{torch.cuda.get_device_name()}, torch {torch.__version__}: better of {TURNS} "
              "alternating turns from the same weights."]  # fmt: skip
    title = "## Translation: sentences of unequal length on a GPU"
    write("sentences_gpu", [title, "\n".join(lines)])
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
