"""Published files, written by transformers and tokenizers themselves, against what we read of them.

    python benchmarks/published.py      in the environment of the peers, which `make bench` makes

Random models of GPT-2, BERT and ViT are saved by `save_pretrained`, and vocabularies are trained by
tokenizers: no download. Each folder is read as `start=` reads it. Logits must be equal to 1e-4 in
float32, value and gradient to 1e-8 in float64, and tokens on 10,000 lines of mixed text. It prints
a line for each comparison and ends with status 1 where one fails.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from everynet.data.dataset import Data
from everynet.data.texts.given import is_lower_case, take_vocabulary
from everynet.recipes.catalog import find, sources
from everynet.recipes.trained import Trained
from everynet.runs.published_folder import read_tensors, with_published
from everynet.system.errors import UserError
from everynet.training.start import Start

ROOT = Path(__file__).resolve().parent.parent
LINES = 10_000
Run: TypeAlias = Callable[[nn.Module], Tensor]
FAILED: list[str] = []
WORDS = (
    "the of and to in language model don't we'll it's na\u00efve \u00dcber stra\u00dfe "
    "\u041c\u043e\u0441\u043a\u0432\u0430 \u6771\u4eac \u30c7\u30fc\u30bf "
    "\u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947 \U0001f642 "
    "\U0001f469\u200d\U0001f680 3.14 1,000 2026 x_1 a+b == != <tag> C# e-mail @you #1 "
    "\u00c7A o\u00f9 \u0130stanbul \u0152UVRE \u00a31 \u2014 \u2026 \u201cquoted\u201d"
)
"""Words, numbers and signs of several scripts."""


def report(what: str, difference: float, most: float) -> None:
    good = difference <= most
    print(f"{what:58} {difference:.1e} (at most {most:.0e}) {'ok' if good else 'FAILED'}")
    FAILED.extend([] if good else [what])


def compare(recipe: Any, theirs: nn.Module, spec: dict[str, Any], run: Run, own: Run) -> None:
    """Logits in float32; value and gradient of a random function of them in float64.

    Gradients are carried over by the table, as weights are.
    """
    ours: nn.Module = recipe.model(Data.described(spec)).eval()
    Start.of(recipe, spec).copy_into(ours)
    name, table = recipe.name, recipe.published
    with torch.no_grad():
        report(f"{name}, logits, float32", (run(theirs) - own(ours)).abs().max().item(), 1e-4)
    theirs, ours = theirs.double(), ours.double()
    other, mine = run(theirs), own(ours)
    report(f"{name}, logits, float64", (other - mine).abs().max().item(), 1e-8)
    weight = torch.randn_like(mine)
    (mine * weight).sum().backward()
    (other * weight).sum().backward()
    known = {n: p.grad for n, p in ours.named_parameters() if p.grad is not None}
    for weight in theirs.parameters():
        weight.data = torch.zeros_like(weight) if weight.grad is None else weight.grad
    with tempfile.TemporaryDirectory() as place:  # the names of a file are not those of modules
        theirs.save_pretrained(place)
        held = read_tensors(Path(place))
    turned = table.rename(held, getattr(recipe, table.sizes[table.layers]))
    worst = max((turned[n] - gradient).abs().max().item() for n, gradient in known.items())
    largest = max(gradient.abs().max().item() for gradient in known.values())
    report(f"{name}, gradients of {len(known)} tensors, float64", worst / max(1, largest), 1e-8)


def mixed_lines() -> list[str]:
    """Lines of these words, with all sorts of spaces and signs between them."""
    draw = random.Random(0)
    words = [*WORDS.split(" "), "\t"]
    lines = []
    for _ in range(LINES):
        chosen = draw.choices(words, k=draw.randint(1, 14))
        lines.append(
            "".join(word + draw.choice((" ", " ", " ", "  ", "", ", ", ". ")) for word in chosen)
        )
    return lines


def compare_tokens(name: str, path: Path, encode: Callable[[str], list[int]]) -> None:
    tokens = take_vocabulary(str(path), lower=is_lower_case(path))
    assert tokens is not None
    lines = mixed_lines()
    wrong = [line for line in lines if tokens.encode(line) != encode(line)]
    report(f"{name}, {len(lines):,} lines whose tokens differ", len(wrong), 0)
    for line in wrong[:2]:
        print("   ", repr(line), tokens.encode(line), encode(line))


def check_gpt(folder: Path) -> None:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import GPT2Config, GPT2LMHeadModel

    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(mixed_lines()[:2000], vocab_size=600, show_progress=False)
    # GPT-2 numbers bytes and pairs, then the end of a text.
    held = json.loads(bpe.to_str())
    vocabulary = held["model"]["vocab"]
    vocabulary["<|endoftext|>"] = len(vocabulary)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in held["model"]["merges"]]
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(vocabulary), n_embd=48, n_head=4, n_layer=3, n_positions=40,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    theirs = shake(GPT2LMHeadModel(config))
    theirs.save_pretrained(folder)
    recipe = with_published(replace(find("gpt"), start=Trained(str(folder))))
    s = torch.randint(0, len(vocabulary), (3, 40))
    compare(recipe, theirs, text_spec(recipe), lambda m: m(s).logits, lambda m: m(s))

    def encode(text: str) -> list[int]:
        return list(bpe.encode(text).ids)

    compare_tokens("GPT-2, vocab.json", folder / "vocab.json", encode)
    held["pre_tokenizer"]["add_prefix_space"] = False
    (folder / "tokenizer.json").write_text(json.dumps(held))
    compare_tokens("GPT-2, tokenizer.json", folder / "tokenizer.json", encode)


def shake(model: nn.Module) -> nn.Module:
    """All weights anew, biases and norms too, so that none can be left out unseen."""
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.2)
    return model.eval()


def text_spec(recipe: Any) -> dict[str, Any]:
    """The description of a text that is cut by the vocabulary of a recipe."""
    tokens = take_vocabulary(recipe.tokens, lower=recipe.lower)
    assert tokens is not None
    return {"kind": "text", "shape": [len(tokens)], "classes": [], "tokens": tokens.spec}


def recipe_of(name: str, folder: Path) -> Any:
    """The recipe, begun from the folder; None where there is none yet."""
    if not any(name in text["recipes"] for text in sources().values()):
        print(f"{name}: no such recipe here; left out")
        return None
    return with_published(replace(find(name), start=Trained(str(folder))))


def check_bert(folder: Path) -> None:
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForPreTraining

    pieces = BertWordPieceTokenizer(lowercase=True)
    pieces.train_from_iterator(mixed_lines()[:2000], vocab_size=400, show_progress=False)
    pieces.save_model(str(folder))

    def encode(text: str) -> list[int]:
        return list(pieces.encode(text, add_special_tokens=False).ids)

    compare_tokens("BERT, vocab.txt", folder / "vocab.txt", encode)
    pieces.save(str(folder / "tokenizer.json"))
    compare_tokens("BERT, tokenizer.json", folder / "tokenizer.json", encode)
    size = pieces.get_vocab_size()
    config = BertConfig(
        vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = shake(BertForPreTraining(config))
    theirs.save_pretrained(folder)
    if (recipe := recipe_of("bert", folder)) is None:
        return
    x, lengths = torch.randint(5, size, (3, 20)), torch.tensor([20, 7, 13])
    segments, real = torch.randint(0, 2, (3, 20)), torch.arange(20) < lengths[:, None]

    def run(model: nn.Module) -> Tensor:
        found = model(x, attention_mask=real.long(), token_type_ids=segments)
        return torch.cat([found.prediction_logits[real].flatten(), found[1].flatten()])

    def own(model: nn.Module) -> Tensor:
        guesses, follows = model(x, lengths, segments)
        return torch.cat([guesses[real].flatten(), follows.flatten()])

    compare(recipe, theirs, text_spec(recipe), run, own)


def check_vit(folder: Path) -> None:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        image_size=32, patch_size=8, num_labels=5, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = shake(ViTForImageClassification(config))
    theirs.save_pretrained(folder)
    if (recipe := recipe_of("vit", folder)) is None:
        return
    x = torch.randn(2, 3, 32, 32)

    def on(model: nn.Module) -> Tensor:
        return x.to(next(model.parameters()))

    spec = {"kind": "image", "shape": [3, 32, 32], "classes": [*"abcde"]}
    compare(recipe, theirs, spec, lambda m: m(on(m)).logits, lambda m: m(on(m)))


def main() -> int:
    if importlib.util.find_spec("transformers") is None:
        peers = ROOT / ".bench" / "attention" / "bin" / "python"
        if not peers.exists():
            print(f"published files are not compared: there is no {peers}; make bench makes it")
            return 0
        paths = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        return subprocess.run([peers, __file__], env=paths, check=False).returncode
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / name for name in ("gpt2", "bert", "vit")]
        for folder in folders:
            folder.mkdir()
        for check, folder in zip((check_gpt, check_bert, check_vit), folders, strict=True):
            try:
                check(folder)
            except UserError as error:
                print(f"{check.__name__}: {error} FAILED")
                FAILED.append(check.__name__)
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
