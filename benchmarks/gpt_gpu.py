"""Updates of `gpt-shakespeare` on a GPU: captured, compiled and eager, beside a plain loop.

    EVERYNET_DATA=... python benchmarks/gpt_gpu.py     a section of RESULTS.md
    python benchmarks/gpt_gpu.py --rehearse            a tiny network anywhere, written nowhere

The plain loop is nanoGPT's in manner (`plain_gpt` of attention.py): windows that begin anywhere,
autocast to bf16, AdamW with decay of matrices, gradients clipped; eager and compiled. All are in
one process and take turns; the best of several turns counts. Of the multiplications alone the
forward and backward products of all matrices are timed in bf16 and of the same shapes: what no
update can be faster than.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import everynet
from attention import plain_gpt
from everynet.data.dataset import Data
from everynet.training.device import choose, computing
from everynet.training.graph import Update
from everynet.training.loop import begin, train
from side_by_side import write

WARM, TURNS = 30, 5
REACH, AIM = 1.5, 1.3  # times as fast as the plain loop, eager and compiled
Turn = Callable[[int], None]
"""Does so many updates."""


def ours(recipe: Any, data: Data, device: str, *, compiled: bool, captured: bool) -> Turn:
    setup = replace(choose(device, "bf16", compiled), capture=captured)
    endless = replace(recipe, steps=10**9, schedule="constant")
    state = begin(endless, data, setup)
    update = Update(endless, state, data, setup)
    records = train(endless, state, data, update=update)
    return lambda count: [next(records) for _ in range(count)] and None


def plain(recipe: Any, data: Data, device: str, *, compiled: bool) -> Turn:
    net = plain_gpt(
        vocabulary=data.spec["shape"][0], hidden=recipe.hidden_size, heads=recipe.heads,
        layers=recipe.layers, context=recipe.context, dropout=recipe.dropout,
    ).to(device)  # fmt: skip
    groups = [
        {"params": [p for p in net.parameters() if (p.dim() > 1) == decays], "weight_decay": decay}
        for decays, decay in ((True, recipe.weight_decay), (False, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, 0.99), fused=True)
    tokens = data.splits["train"][0].to(device).long()
    within = torch.arange(recipe.context + 1, device=device)
    network = torch.compile(net) if compiled else net

    def turn(count: int) -> None:
        for _ in range(count):
            starts = torch.randint(
                len(tokens) - recipe.context, (recipe.batch_size, 1), device=device
            )
            window = tokens[starts + within]
            with torch.autocast(device, torch.bfloat16):
                logits = network(window[:, :-1])
                loss = cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
            optimizer.step()

    return turn


def products(recipe: Any, vocabulary: int, device: str) -> Turn:
    """Each matrix forward, and backward to its input and its weights; and those of attention."""
    h, rows = recipe.hidden_size, recipe.batch_size * recipe.context

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=torch.bfloat16)

    layer = [(3 * h, h), (h, h), (4 * h, h), (h, 4 * h)]
    shapes = [*layer * recipe.layers, (vocabulary, h)]
    dense = [(random(n, m), random(rows, m), random(rows, n)) for n, m in shapes]
    heads, size = recipe.batch_size * recipe.heads, h // recipe.heads
    query, score = (
        random(heads, recipe.context, size),
        random(heads, recipe.context, recipe.context),
    )

    def multiply() -> None:
        for weight, x, y in dense:
            x @ weight.T
            y @ weight
            y.T @ x
        for _ in range(3 * recipe.layers):  # of the scores and of the values, and both ways back
            query @ query.transpose(1, 2)
            score @ query

    return lambda count: [multiply() for _ in range(count)] and None


def clocked(turn: Turn, count: int, device: str) -> float:
    """Seconds of an update."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    turn(count)
    wait()
    return (time.perf_counter() - start) / count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true")
    rehearse = parser.parse_args().rehearse
    if not rehearse and not torch.cuda.is_available():
        print("gpt_gpu.py is left out: there is no GPU here")
        return 0
    device = "cpu" if rehearse else "cuda"
    recipe = everynet.recipe("gpt").tiny() if rehearse else everynet.recipe("gpt-shakespeare")
    warm, count, turns = (1, 1, 1) if rehearse else (WARM, 100, TURNS)
    if not rehearse:
        torch.set_float32_matmul_precision("high")
    with computing(choose(device, "bf16")):
        data = recipe.dataset().to(torch.device(device), torch.float32)
        racing = {
            "ours, captured": ours(recipe, data, device, compiled=False, captured=True),
            "ours, captured, `--compile`": ours(recipe, data, device, compiled=True, captured=True),
            "ours, eager": ours(recipe, data, device, compiled=False, captured=False),
            "plain loop, eager": plain(recipe, data, device, compiled=False),
            "plain loop, compiled": plain(recipe, data, device, compiled=True),
            "products alone": products(recipe, data.spec["shape"][0], device),
        }
        for name in [*racing] if not rehearse else [n for n in racing if "compile" not in n]:
            racing[name](warm)
        if rehearse:
            racing = {name: turn for name, turn in racing.items() if "compile" not in name}
        best = dict.fromkeys(racing, float("inf"))
        for _ in range(turns):
            for name, turn in racing.items():
                best[name] = min(best[name], clocked(turn, count, device))
    tokens = recipe.batch_size * recipe.context
    lines = [
        "## `gpt-shakespeare` on a GPU\n",
        f"Updates of {recipe.batch_size} x {recipe.context} characters in bf16, {recipe.layers} "
        f"layers, {recipe.hidden_size} wide; best of {turns} alternating turns of {count}. The "
        "share is that of the products alone in an update.\n",
        "| | ms an update | tokens/s | share of products |",
        "|---|---|---|---|",
    ]
    for name, seconds in best.items():
        share = best["products alone"] / seconds
        lines.append(f"| {name} | {seconds * 1e3:.2f} | {tokens / seconds:,.0f} | {share:.0%} |")
    fastest = min(seconds for name, seconds in best.items() if name.startswith("ours"))
    for name, least, word in (("eager", REACH, "to reach"), ("compiled", AIM, "aim")):
        if f"plain loop, {name}" in best:
            ratio = best[f"plain loop, {name}"] / fastest
            verdict = "reached" if ratio >= least else "not reached"
            lines.append(
                f"\nBeside the plain loop, {name}: {ratio:.2f} x ({word} {least}: {verdict})."
            )
    if not rehearse:
        lines.append(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}.")
        write("gpt-gpu", ["\n".join(lines)])
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
