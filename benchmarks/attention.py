"""Attention beside the peers: translating and its scores, training a small GPT, writing.

    python benchmarks/attention.py                    the tables of benchmarks/RESULTS.md
    python benchmarks/attention.py --part bleu        one part
    python benchmarks/attention.py --repeats 1        a quick look, written nowhere

BLEU: the 1,000 German captions of Multi30k's test where EVERYNET_DATA holds them, else sentences of
`verb-final`, are the references; hypotheses are the same with words left out, replaced and swapped.
Each is given the same texts and splits them itself, in every turn; scores must be equal to ten
digits. `ids` are the tokens of "none" as padded tensors, which sacrebleu does not take.

Decoding: a transformer of 4 + 4 layers, 256 wide, for 8,000 tokens, as `transformer-multi30k` has
it, beside the MarianMT of transformers, whose layers are the same in number and sizes. Weights are
random and the token that ends a sentence is never written, so that each writes exactly 32 tokens
for a source of 16: one sentence, greedy, and one by a beam of 5. The products of a step with the
decoder's matrices, without anything between them, are what no decoder here can be faster than.

Recurrent translators: `Bahdanau` with 512 units and embeddings of 256 for 8,000 tokens, beside the
recurrent model with Bahdanau's attention of JoeyNMT in these sizes (its readout is one layer in the
place of our maxout). An update by Adam on 32 pairs of 14 tokens, gradients clipped; and the
translation of 32 sentences of 14 tokens into 20 each, greedy.

GPT: 4 layers, 256 wide, 4 heads, 8,000 tokens, beside the GPT2LMHeadModel of transformers and a
plain loop in the manner of nanoGPT, written here. Training: an update by AdamW on 8 texts of 128
tokens, gradients clipped, no dropout; ours is the update of the recipe `gpt`. Writing: 64 greedy
tokens after a prompt of 16, keys and values cached; the plain loop has no cache and is left out.
"""

import functools
import importlib.metadata
import random
import sys
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, Turn, arguments

REACH = 3.0


@functools.cache
def texts() -> tuple[str, list[str], list[str], list[str]]:
    """What they are, hypotheses and two sets of references."""
    from everynet.data.loading import samples
    from everynet.system.errors import UserError

    try:
        what, first = "captions of Multi30k", samples("multi30k-de", kind="pairs").parts["test"][1]
    except UserError:  # they are not here
        what, first = "sentences", samples("verb-final:5000", kind="pairs").parts["test"][1]
    draw = random.Random(1)
    words = [word for text in first for word in text.split()]

    def corrupt(text: str) -> str:
        kept = [word for word in text.split() if draw.random() > 0.08]
        other = [draw.choice(words) if draw.random() < 0.1 else word for word in kept]
        for at in draw.choices(range(max(1, len(other) - 1)), k=max(1, len(other) // 8)):
            other[at : at + 2] = reversed(other[at : at + 2])
        return " ".join(other)

    return what, [corrupt(text) for text in first], first, [corrupt(text) for text in first]


def given_to(job: Job) -> tuple[list[str], list[list[str]]]:
    _, hypotheses, *references = texts()
    return hypotheses, references[: job["references"]]


def with_everynet(job: Job) -> Callable[[], Turn]:
    from everynet.metrics.bleu import corpus_bleu, match_texts, sentence_bleu

    hypotheses, references = given_to(job)

    def score() -> Turn:
        matches = match_texts(hypotheses, references, tokenize=job["tokenize"])
        if job["task"] == "sentences":
            return Turn(note=f"mean {sentence_bleu(matches).mean().item():.10f}")
        return Turn(note=f"{corpus_bleu(matches).score:.10f}")

    return score


def with_ids(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.metrics.bleu import corpus_bleu, match_ids

    hypotheses, references = given_to(job)
    index: dict[str, int] = {}

    def padded(side: list[str]) -> torch.Tensor:
        rows = [[index.setdefault(w, len(index) + 1) for w in text.split()] for text in side]
        return torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True)

    own, others = padded(hypotheses), [padded(side) for side in references]
    return lambda: Turn(note=f"{corpus_bleu(match_ids(own, others)).score:.10f}")


def with_sacrebleu(job: Job) -> Callable[[], Turn]:
    from sacrebleu.metrics import BLEU

    hypotheses, references = given_to(job)

    def score() -> Turn:
        alone = job["task"] == "sentences"
        bleu = BLEU(tokenize=job["tokenize"], effective_order=alone)  # anew: it remembers sentences
        if not alone:
            return Turn(note=f"{bleu.corpus_score(hypotheses, references).score:.10f}")
        pairs = zip(hypotheses, zip(*references, strict=True), strict=True)
        scores = [bleu.sentence_score(own, others).score for own, others in pairs]
        return Turn(note=f"mean {sum(scores) / len(scores):.10f}")

    return score


def scorers() -> list[Contestant]:
    """Ours first."""
    try:
        ours = importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:  # src is on the path, and that is enough
        ours = ""
    return [
        Contestant("everynet", with_everynet, "everynet.metrics", ours),
        Contestant("sacrebleu", with_sacrebleu, "sacrebleu", "sacrebleu", reach=REACH),
        Contestant("everynet ids", with_ids, "everynet.metrics", ours),
    ]


def score_translations(page: Page) -> None:
    for title, racing, task, tokenize, references in (
        ("A corpus, none", 3, "corpus", "none", 1),
        ("A corpus, none, two references", 3, "corpus", "none", 2),
        ("A corpus, 13a", 2, "corpus", "13a", 1),
        ("Each sentence, none", 2, "sentences", "none", 1),
    ):
        job = {"task": task, "tokenize": tokenize, "references": references, "threads": 1}
        page.round(title, scorers()[:racing], job)
    what, hypotheses, *_ = texts()
    page.close(
        "BLEU",
        f"{len(hypotheses):,} {what}, corrupted, against themselves; seconds for all, splitting "
        f"included; best of {page.given.repeats} alternating turns on one thread.",
        part="bleu",
    )


SIZES = {"vocabulary": 8000, "hidden": 256, "heads": 4, "feedforward": 512, "layers": 4}
SOURCE, TARGET = 16, 32


def decode_with_everynet(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.zoo.transformer.transformer import PreNormTransformer

    torch.manual_seed(0)
    net = PreNormTransformer(
        SIZES["vocabulary"], hidden_size=SIZES["hidden"], heads=SIZES["heads"],
        feedforward_size=SIZES["feedforward"], layers=SIZES["layers"], context=64,
    ).eval()  # fmt: skip
    net.end = SIZES["vocabulary"] - 1
    speak, end = net.speak, torch.tensor([net.end])
    net.speak = lambda s: speak(s).index_fill_(2, end, -1e9)
    x = torch.randint(4, SIZES["vocabulary"] - 1, (job["sentences"], SOURCE))
    lengths = torch.full((len(x),), SOURCE)

    @torch.inference_mode()
    def decode() -> Turn:
        tokens, _ = net.write(x, lengths, TARGET, job["beam"])
        return Turn(note=f"{tokens.shape[1]} tokens")

    return decode


def decode_with_transformers(job: Job) -> Callable[[], Turn]:
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    last = SIZES["vocabulary"] - 1
    config = MarianConfig(
        vocab_size=SIZES["vocabulary"], d_model=SIZES["hidden"], max_position_embeddings=64,
        encoder_layers=SIZES["layers"], decoder_layers=SIZES["layers"],
        encoder_attention_heads=SIZES["heads"], decoder_attention_heads=SIZES["heads"],
        encoder_ffn_dim=SIZES["feedforward"], decoder_ffn_dim=SIZES["feedforward"],
        pad_token_id=0, eos_token_id=last, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    net = MarianMTModel(config).eval()
    x = torch.randint(4, last, (job["sentences"], SOURCE))

    @torch.inference_mode()
    def decode() -> Turn:
        tokens = net.generate(
            x, attention_mask=torch.ones_like(x), num_beams=job["beam"], do_sample=False,
            max_new_tokens=TARGET, min_new_tokens=TARGET, use_cache=True,
        )  # fmt: skip
        return Turn(note=f"{tokens.shape[1] - 1} tokens")

    return decode


def multiply_alone(shapes: list[tuple[int, int]], rows: int, steps: int) -> Callable[[], Turn]:
    """The products of so many steps with these matrices (outputs, inputs), and nothing else."""
    import torch
    from torch.nn.functional import linear

    layers = [(torch.randn(n, m), torch.randn(n), torch.randn(rows, m)) for n, m in shapes]

    @torch.inference_mode()
    def multiply() -> Turn:
        for _ in range(steps):
            for weight, bias, x in layers:
                linear(x, weight, bias)
        return Turn(note=f"{sum(weight.numel() for weight, *_ in layers):,} weights")

    return multiply


def multiply_as_decoder(job: Job) -> Callable[[], Turn]:
    h, f = SIZES["hidden"], SIZES["feedforward"]
    layer = [(3 * h, h), (h, h), (h, h), (h, h), (f, h), (h, f)]
    shapes = [*layer * SIZES["layers"], (SIZES["vocabulary"], h)]
    return multiply_alone(shapes, job["beam"] * job["sentences"], TARGET)


def multiply_as_gpt(job: Job) -> Callable[[], Turn]:
    h = GPT_SIZES["hidden"]
    layer = [(3 * h, h), (h, h), (4 * h, h), (h, 4 * h)]
    return multiply_alone([*layer * GPT_SIZES["layers"], (GPT_SIZES["vocabulary"], h)], 1, WRITTEN)


def decoders(reach: float) -> list[Contestant]:
    """Ours first."""
    return [
        Contestant(
            "everynet transformer", decode_with_everynet, "everynet.nn", scorers()[0].package
        ),
        Contestant(
            "transformers", decode_with_transformers, "transformers", "transformers", reach=reach
        ),
        Contestant("products of a decoder alone", multiply_as_decoder, "torch", "torch"),
    ]


def decode_sentences(page: Page) -> None:
    for title, beam, reach in (("Greedy", 1, 2.0), ("A beam of 5", 5, 3.0)):
        for threads in (1, 2):
            job = {"beam": beam, "sentences": 1, "threads": threads}
            page.round(f"{title}, {threads} thread{'s' * (threads > 1)}", decoders(reach), job)
    page.close(
        "Decoding one sentence",
        f"{TARGET} tokens for a source of {SOURCE}, by 4 + 4 layers, 256 wide, of 8,000 tokens; "
        "seconds a sentence, keys and values cached; best of "
        f"{page.given.repeats} alternating turns.",
        part="decoding",
    )


RECURRENT = {"vocabulary": 8000, "embedding": 256, "hidden": 512}
PAIRS, LENGTH, WORDS = 32, 14, 20


def random_pairs() -> tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]:
    """Sources, their lengths, and targets from the token that starts them to the one that ends."""
    import torch

    torch.manual_seed(0)
    x, y = torch.randint(4, RECURRENT["vocabulary"], (2, PAIRS, LENGTH))
    y[:, 0], y[:, -1] = 2, 3
    return x, torch.full((PAIRS,), LENGTH), y


def translate_with_everynet(job: Job) -> Callable[[], Turn]:
    import torch
    from torch.nn.functional import cross_entropy

    from everynet.zoo.translation.bahdanau import Bahdanau

    x, lengths, y = random_pairs()
    words = RECURRENT["vocabulary"]
    net = Bahdanau(words, words, embedding=RECURRENT["embedding"], hidden_size=RECURRENT["hidden"])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def update() -> Turn:
        loss = cross_entropy(net(x, lengths, y[:, :-1]).flatten(0, 1), y[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return Turn(note=f"{sum(p.numel() for p in net.parameters()):,} weights")

    @torch.inference_mode()
    def write() -> Turn:
        net.end = -1  # never
        tokens, _ = net.write(x, lengths, WORDS, 1)
        return Turn(note=f"{tokens.shape[1]} tokens")

    net.train(job["task"] == "update")
    return update if job["task"] == "update" else write


def translate_with_joeynmt(job: Job) -> Callable[[], Turn]:
    from types import SimpleNamespace

    import torch
    from joeynmt.model import build_model
    from joeynmt.search import greedy
    from joeynmt.vocabulary import Vocabulary

    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None,
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, lang_tags=[],
    )  # fmt: skip
    words = Vocabulary([f"w{n}" for n in range(RECURRENT["vocabulary"] - 4)], special)
    part = {
        "type": "recurrent", "rnn_type": "gru",
        "embeddings": {"embedding_dim": RECURRENT["embedding"]},
        "hidden_size": RECURRENT["hidden"], "num_layers": 1, "dropout": 0.0,
    }  # fmt: skip
    decoder = {**part, "attention": "bahdanau", "init_hidden": "bridge", "input_feeding": False}
    sizes = {"encoder": {**part, "bidirectional": True}, "decoder": decoder}
    net = build_model(sizes, words, words)
    net.loss_function = ("crossentropy", 0.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, lengths, y = random_pairs()
    masks = {"src_mask": (x != 1)[:, None], "trg_mask": (y[:, 1:] != 1)[:, None]}

    def update() -> Turn:
        loss, *_ = net(
            return_type="loss", src=x, src_length=lengths, trg_input=y[:, :-1], trg=y[:, 1:],
            **masks,
        )  # fmt: skip
        optimizer.zero_grad()
        (loss / y[:, 1:].numel()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return Turn(note=f"{sum(p.numel() for p in net.parameters()):,} weights")

    @torch.inference_mode()
    def write() -> Turn:
        output, hidden, _, _ = net(
            return_type="encode", src=x, src_length=lengths, src_mask=masks["src_mask"]
        )
        tokens, _, _ = greedy(
            src_mask=masks["src_mask"], max_output_length=WORDS, min_output_length=WORDS,
            model=net, encoder_output=output, encoder_hidden=hidden, generate_unk=True,
        )  # fmt: skip
        return Turn(note=f"{tokens.shape[1]} tokens")

    net.train(job["task"] == "update")
    return update if job["task"] == "update" else write


def translators() -> list[Contestant]:
    """Ours first."""
    ours = scorers()[0].package
    return [
        Contestant("everynet bahdanau", translate_with_everynet, "everynet.zoo", ours),
        Contestant("joeynmt", translate_with_joeynmt, "joeynmt.model", "joeynmt", reach=3.0),
    ]


def translate_by_recurrence(page: Page) -> None:
    for title, task in (("An update", "update"), (f"{WORDS} tokens, greedy", "write")):
        for threads in (1, 2):
            job = {"task": task, "threads": threads}
            page.round(f"{title}, {threads} thread{'s' * (threads > 1)}", translators(), job)
    page.close(
        "A recurrent translator with attention",
        f"{PAIRS} sentences of {LENGTH} tokens, 512 units, embeddings of 256, 8,000 tokens; "
        f"seconds, best of {page.given.repeats} alternating turns. A ratio of 3 is the aim.",
        part="recurrent",
    )


GPT_SIZES = {"vocabulary": 8000, "hidden": 256, "heads": 4, "layers": 4, "context": 128}
TEXTS, PROMPT, WRITTEN = 8, 16, 64


def stream() -> "torch.Tensor":
    import torch

    return torch.randint(0, GPT_SIZES["vocabulary"], (100_000,))


def gpt_everynet() -> "nn.Module":
    import torch

    from everynet.zoo.transformer.gpt import GPT

    torch.manual_seed(0)
    names = {"hidden_size": "hidden", "heads": "heads", "layers": "layers", "context": "context"}
    sizes = {ours: GPT_SIZES[name] for ours, name in names.items()}
    return GPT(GPT_SIZES["vocabulary"], **sizes, dropout=0.0)


def gpt_transformers() -> "nn.Module":
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=GPT_SIZES["vocabulary"], n_embd=GPT_SIZES["hidden"],
            n_head=GPT_SIZES["heads"], n_layer=GPT_SIZES["layers"],
            n_positions=GPT_SIZES["context"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            bos_token_id=0, eos_token_id=None, pad_token_id=0,
        )
    )  # fmt: skip


def train_with_everynet(job: Job) -> Callable[[], Turn]:
    from dataclasses import replace

    from everynet.data.dataset import Data
    from everynet.data.samplers import Windows
    from everynet.recipes.catalog import find
    from everynet.training.device import choose
    from everynet.training.graph import Update
    from everynet.training.loop import begin

    names = ("hidden_size", "heads", "layers", "context")
    sizes = dict(zip(names, [*GPT_SIZES.values()][1:], strict=True))
    recipe = replace(find("gpt"), **sizes, batch_size=TEXTS, steps=10**9, eval_every=10**9)
    spec = {"kind": "text", "shape": [GPT_SIZES["vocabulary"]], "classes": []}
    splits = {part: (stream(),) for part in ("train", "valid", "test")}
    data = Data(splits, spec, TEXTS, 0, "", sampler=Windows(GPT_SIZES["context"]))
    state = begin(recipe, data)
    state.model.train()
    update = Update(recipe, state, data, choose("cpu"))
    with data.feed(update.share) as feed:

        def step() -> Turn:
            for _ in range(job["updates"]):
                terms = update(feed, ())
            return Turn(note=f"loss {terms['cross_entropy'].item():.2f}")

        return step


def train_plainly(
    net: "nn.Module",
    loss_of: Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"],
    updates: int,
) -> Callable[[], Turn]:
    """The loop of nanoGPT: windows that begin anywhere, AdamW with decay of matrices, clipping."""
    import torch

    tokens, context = stream(), GPT_SIZES["context"]
    groups = [
        {"params": [p for p in net.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.99), fused=True)
    net.train()

    def step() -> Turn:
        for _ in range(updates):
            places = torch.randint(len(tokens) - context - 1, (TEXTS,)).tolist()
            x = torch.stack([tokens[at : at + context] for at in places])
            y = torch.stack([tokens[at + 1 : at + context + 1] for at in places])
            loss = loss_of(x, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        return Turn(note=f"loss {loss.item():.2f}")

    return step


def train_with_transformers(job: Job) -> Callable[[], Turn]:
    from torch.nn.functional import cross_entropy

    net = gpt_transformers()

    def loss_of(x: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
        return cross_entropy(net(x).logits.flatten(0, 1), y.flatten())

    return train_plainly(net, loss_of, job["updates"])


def plain_gpt(
    *, vocabulary: int, hidden: int, heads: int, layers: int, context: int, dropout: float = 0.0
) -> "nn.Module":
    """A GPT as one writes it by hand, in the manner of nanoGPT: it maps tokens to logits."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.c_attn, self.c_proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.fc, self.out = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
            self.dropout = nn.Dropout(dropout)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, time, _ = x.shape
            q, k, v = (
                part.view(batch, time, heads, -1).transpose(1, 2)
                for part in self.c_attn(self.ln_1(x)).split(hidden, 2)
            )
            p = dropout if self.training else 0.0
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
            x = x + self.dropout(
                self.c_proj(y.transpose(1, 2).contiguous().view(batch, time, hidden))
            )
            h = functional.gelu(self.fc(self.ln_2(x)), approximate="tanh")
            return x + self.dropout(self.out(h))

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, hidden), nn.Embedding(context, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.dropout, self.ln_f = nn.Dropout(dropout), nn.LayerNorm(hidden)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.dropout(self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device)))
            for block in self.blocks:
                h = block(h)
            return functional.linear(self.ln_f(h), self.wte.weight)

    torch.manual_seed(0)
    net = Plain()
    for weight in net.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.02)
    return net


def train_in_plain_torch(job: Job) -> Callable[[], Turn]:
    from torch.nn.functional import cross_entropy

    net = plain_gpt(**GPT_SIZES)

    def loss_of(x: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
        return cross_entropy(net(x).flatten(0, 1), y.flatten())

    return train_plainly(net, loss_of, job["updates"])


def write_with_everynet(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.nn.decoding import generate, take_likeliest

    net = gpt_everynet().eval()
    prompt = torch.randint(0, GPT_SIZES["vocabulary"], (1, PROMPT))

    @torch.inference_mode()
    def write() -> Turn:
        tokens, _ = generate(net.step, *net.begin(prompt), WRITTEN, take_likeliest)
        return Turn(note=f"{tokens.shape[1]} tokens")

    return write


def write_with_transformers(job: Job) -> Callable[[], Turn]:
    import torch

    net = gpt_transformers().eval()
    prompt = torch.randint(0, GPT_SIZES["vocabulary"], (1, PROMPT))

    @torch.inference_mode()
    def write() -> Turn:
        tokens = net.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, num_beams=1,
            max_new_tokens=WRITTEN, min_new_tokens=WRITTEN, use_cache=True,
        )  # fmt: skip
        return Turn(note=f"{tokens.shape[1] - PROMPT} tokens")

    return write


def gpt_trainers() -> list[Contestant]:
    """Ours first."""
    ours = scorers()[0].package
    return [
        Contestant("everynet gpt", train_with_everynet, "everynet.zoo", ours),
        Contestant("plain torch gpt", train_in_plain_torch, "torch", "torch", reach=1.0),
        Contestant(
            "transformers gpt2", train_with_transformers, "transformers", "transformers", reach=1.0
        ),
    ]


def gpt_writers() -> list[Contestant]:
    """Ours first."""
    ours = scorers()[0].package
    return [
        Contestant("everynet gpt writing", write_with_everynet, "everynet.zoo", ours),
        Contestant(
            "transformers gpt2 writing", write_with_transformers, "transformers", "transformers",
            reach=2.0,
        ),
        Contestant("products of a gpt alone", multiply_as_gpt, "torch", "torch"),
    ]  # fmt: skip


def train_and_write_gpt(page: Page) -> None:
    for threads in (1, 2):
        several = f"{threads} thread{'s' * (threads > 1)}"
        page.round(f"Two updates, {several}", gpt_trainers(), {"updates": 2, "threads": threads})
    for threads in (1, 2):
        several = f"{threads} thread{'s' * (threads > 1)}"
        page.round(f"{WRITTEN} tokens, {several}", gpt_writers(), {"threads": threads})
    page.close(
        "A small GPT",
        f"4 layers, 256 wide, 8,000 tokens. Updates on {TEXTS} texts of {GPT_SIZES['context']} "
        f"tokens, seconds for two; {WRITTEN} greedy tokens of one text after {PROMPT}, keys and "
        f"values cached, seconds; best of {page.given.repeats} alternating turns.",
        part="gpt",
    )


PARTS = {
    "bleu": score_translations, "decoding": decode_sentences, "recurrent": translate_by_recurrence,
    "gpt": train_and_write_gpt,
}  # fmt: skip


def main() -> None:
    everyone = [*scorers(), *decoders(1.0), *translators(), *gpt_trainers(), *gpt_writers()]
    given = arguments(__doc__.splitlines()[0], everyone, repeats=7)
    page = Page("attention", __file__, given)
    for name, part in PARTS.items():
        if given.part in ("", name):
            part(page)


if __name__ == "__main__":
    sys.exit(main())
