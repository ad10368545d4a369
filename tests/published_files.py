"""Published files of small random networks, written as Hugging Face lays them out, and GPT-2 anew.

The network here is a plain function of the tensors of the file, by GPT-2's equations: nothing of
everynet takes part in it.
"""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file

from everynet.data.texts import bpe

SIZES = {"n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 12}


def gpt2_tensors(vocabulary, seed=0, dtype=torch.float32, **sizes):
    """Random tensors of a published GPT-2; a matrix multiplies from the right."""
    size, layers, positions = ({**SIZES, **sizes}[n] for n in ("n_embd", "n_layer", "n_positions"))
    draw = torch.Generator().manual_seed(seed)
    shapes = {"wte.weight": (vocabulary, size), "wpe.weight": (positions, size)}
    for n in range(layers):
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"h.{n}.{norm}.{part}": (size,) for part in ("weight", "bias")}
        for name, width, out in (
            ("attn.c_attn", size, 3 * size), ("attn.c_proj", size, size),
            ("mlp.c_fc", size, 4 * size), ("mlp.c_proj", 4 * size, size),
        ):  # fmt: skip
            shapes |= {f"h.{n}.{name}.weight": (width, out), f"h.{n}.{name}.bias": (out,)}
    shapes |= {f"ln_f.{part}": (size,) for part in ("weight", "bias")}
    return {
        name: torch.randn(shape, generator=draw, dtype=torch.double).mul(0.5).to(dtype)
        for name, shape in shapes.items()
    }


def gpt2_logits(tensors, s, heads=SIZES["n_head"]):
    """The logits of the next token at each of (batch, time) tokens."""

    def norm(x, name):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
        x = (x - mean) / (variance + 1e-5).sqrt()
        return x * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    def dense(x, name):
        return x @ tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    batch, time = s.shape
    x = tensors["wte.weight"][s] + tensors["wpe.weight"][:time]
    past = torch.tril(torch.ones(time, time, dtype=torch.bool))
    for n in range(sum(name.endswith("ln_1.weight") for name in tensors)):
        q, k, v = (
            part.reshape(batch, time, heads, -1).transpose(1, 2)
            for part in dense(norm(x, f"h.{n}.ln_1"), f"h.{n}.attn.c_attn").chunk(3, -1)
        )
        scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~past, -math.inf).softmax(-1)
        read = (weights @ v).transpose(1, 2).reshape(batch, time, -1)
        x = x + dense(read, f"h.{n}.attn.c_proj")
        z = dense(norm(x, f"h.{n}.ln_2"), f"h.{n}.mlp.c_fc")
        z = z / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
        x = x + dense(z, f"h.{n}.mlp.c_proj")
    return norm(x, "ln_f") @ tensors["wte.weight"].T


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def byte_pairs(merges=(("t", "h"), ("th", "e"), ("Ġ", "the"))):
    """The vocabulary of GPT-2's form with few pairs, and these."""
    words = [*map(bpe.written, bpe.spelt([])), *("".join(pair) for pair in merges)]
    return {word: n for n, word in enumerate([*words, "<|endoftext|>"])}, merges


def write_gpt2(folder: Path, tensors=None, prefix="transformer.", **config):
    """A folder as transformers writes it; gives the tensors."""
    folder.mkdir(exist_ok=True)
    vocabulary, merges = byte_pairs()
    write_json(folder / "vocab.json", vocabulary)
    lines = "".join(f"{a} {b}\n" for a, b in merges)
    (folder / "merges.txt").write_text("#version: 0.2\n" + lines, encoding="utf-8")
    write_json(folder / "config.json", {"model_type": "gpt2", **SIZES, **config})
    tensors = tensors or gpt2_tensors(len(vocabulary))
    stored = {prefix + name: tensor for name, tensor in tensors.items()}
    stored["transformer.h.0.attn.bias"] = torch.ones(1, 1, 12, 12)
    stored["lm_head.weight"] = tensors["wte.weight"].clone()
    save_file(stored, folder / "model.safetensors")
    return tensors
