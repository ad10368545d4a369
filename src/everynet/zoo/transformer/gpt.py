"""GPT: a transformer that reads a text from the left and predicts every next token of it.

    x_p = E[s_p] + P_p                                            (1)  token and its position
    x  <- x + A(LN(x))                                            (2)  causal self-attention
    x  <- x + W2 gelu(W1 LN(x) + b1) + b2                         (3)  feed-forward network
    gelu(z) = z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))       (4)  activation
    p(s_{p+1} | s_1 .. s_p) = softmax(E LN(x_p))                  (5)  the embedding gives logits
    L = -mean_p log p(s_{p+1} | s_1 .. s_p)                       (6)  cross-entropy, in nats

E is the embedding and P the learned positions; (2) and (3) make a layer (`nn/transformer.py`,
pre-norm), A is the multi-head attention of `nn/attention.py`. Weights begin as normal numbers of
deviation 0.02, those of the last matrix of each sublayer divided by sqrt(2 layers), because as many
of them are added up.

To write, keys and values of the tokens so far are kept, so that a token costs one step. A text has
at most `context` tokens: where these are full, the window slides by half: its later half is read
again as a text of its own, from position 0 on, and written on from there.

Radford et al. (2019), "Language models are unsupervised multitask learners" (GPT-2); Radford et al.
(2018), "Improving language understanding by generative pre-training"; Hendrycks, Gimpel (2016),
"Gaussian error linear units", arXiv:1606.08415, for (4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias, cast

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu
from torch.optim import Optimizer

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.samplers import Windows
from everynet.data.texts.tokens import Tokens
from everynet.nn import few_rows
from everynet.nn.attention import KeyValueCache, record_weights
from everynet.nn.chunked_cross_entropy import chunked_cross_entropy
from everynet.nn.decoding import Draw, generate
from everynet.nn.losses import IGNORED
from everynet.nn.positions import LearnedPositions
from everynet.nn.transformer import PreNormEncoderLayer
from everynet.plot import Panel, panels
from everynet.plot.sentences import head_maps
from everynet.recipes.published import Published
from everynet.system.errors import UserError
from everynet.zoo.recurrent.next_token import LanguageModel
from everynet.zoo.transformer.pictures.attention import rests_on
from everynet.zoo.transformer.pictures.lens import draw_lens

STD = 0.02
"""Standard deviation of the weights at first."""
SHOWN, MAPPED = 24, 14
"""Tokens of a text that are drawn, and those of a map of attention."""
WriterState: TypeAlias = tuple[Tensor | KeyValueCache, ...]
"""The tokens in the window, and keys and values of each layer."""


class GPTLayer(PreNormEncoderLayer):
    """A layer of GPT: pre-norm, with (4), and dropout of attention and of both sublayers."""

    def __init__(self, hidden_size: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__(hidden_size, heads, 4 * hidden_size, dropout=dropout)
        self.attention.dropout = dropout

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        """The function of the feed-forward network."""
        return gelu(x, approximate="tanh")  # (4)


class GPT(nn.Module):
    """Maps tokens to logits of those that follow; every logit depends on tokens up to it alone.

    s  (batch, time) -> x  (batch, time, hidden) -> logits  (batch, time, tokens)
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        hidden_size: int = 768,
        heads: int = 12,
        layers: int = 12,
        context: int = 1024,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(vocabulary, hidden_size)
        self.positions = LearnedPositions(hidden_size, context)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            GPTLayer(hidden_size, heads, dropout=dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden_size)
        self.init_weights()

    def init_weights(self) -> None:
        """Normal numbers; those of the matrices that end a sublayer are smaller."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                ends = name.endswith(".output")
                scale = (2 * len(self.layers)) ** -0.5 if ends else 1.0
                nn.init.normal_(module.weight, std=STD * scale)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def embed(
        self, s: Int64[Tensor, "batch time"], start: int = 0
    ) -> Float[Tensor, "batch time hidden"]:
        """Tokens and their positions, the first of which is `start`."""
        x: Tensor = self.dropout(self.positions(self.embedding(s), start=start))  # (1)
        return x

    def states(self, s: Int64[Tensor, "batch time"]) -> list[Float[Tensor, "batch time hidden"]]:
        """The numbers x before the first layer and after each."""
        every = [self.embed(s)]
        for layer in self.layers:
            every.append(layer(every[-1], causal=True))  # (2) (3)
        return every

    def speak(self, x: Float[Tensor, "batch time hidden"]) -> Float[Tensor, "batch time vocab"]:
        """Logits of the next token."""
        return few_rows.linear(self.norm(x), self.embedding.weight)  # (5)

    def forward(self, s: Int64[Tensor, "batch time"]) -> Float[Tensor, "batch time vocab"]:
        return self.speak(self.states(s)[-1])

    def begin(
        self, s: Int64[Tensor, "batch time"]
    ) -> tuple[Float[Tensor, "batch vocab"], WriterState]:
        """Logits of the token after a text, of which the last `context` tokens are read."""
        s = s.to(self.embedding.weight.device)[:, -self.context :]
        layers = cast("Iterable[GPTLayer]", self.layers)
        empty = [layer.attention.empty_cache(len(s), self.context) for layer in layers]
        logits, after = self._go_on(s, empty)
        return logits, (s, *after)

    def step(
        self, tokens: Int64[Tensor, " batch"], state: WriterState
    ) -> tuple[Float[Tensor, "batch vocab"], WriterState]:
        """Logits of the token after one more; a full window slides by half."""
        s = torch.cat([cast("Tensor", state[0]), tokens[:, None]], 1)
        if s.shape[1] > self.context:
            return self.begin(s[:, -(self.context // 2 + 1) :])
        logits, after = self._go_on(tokens[:, None], cast("Sequence[KeyValueCache]", state[1:]))
        return logits, (s, *after)

    def _go_on(
        self, s: Tensor, past: Sequence[KeyValueCache]
    ) -> tuple[Tensor, list[KeyValueCache]]:
        x = self.embed(s, start=past[0].length)
        after = []
        for layer, before in zip(cast("Iterable[GPTLayer]", self.layers), past, strict=True):
            x, then = layer.step(x, before)
            after.append(then)
        return self.speak(x[:, -1:])[:, 0], after


def _names() -> dict[str, str]:
    """Names of GPT-2's tensors by ours."""
    parts = {
        "around_attention.norm": "ln_1", "attention.project": "attn.c_attn",
        "attention.output": "attn.c_proj", "around_feedforward.norm": "ln_2",
        "feedforward.inner": "mlp.c_fc", "feedforward.output": "mlp.c_proj",
    }  # fmt: skip
    both = [("layers.{n}." + ours, "h.{n}." + theirs) for ours, theirs in parts.items()]
    whole = {f"{a}.{end}": f"{b}.{end}" for a, b in both for end in ("weight", "bias")}
    ends = {f"norm.{end}": f"ln_f.{end}" for end in ("weight", "bias")}
    return {"embedding.weight": "wte.weight", "positions.table": "wpe.weight", **whole, **ends}


GPT2 = Published(
    model_type="gpt2",
    sizes={
        "n_embd": "hidden_size", "n_head": "heads", "n_layer": "layers", "n_positions": "context",
    },
    fixed={
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"), "layer_norm_epsilon": (1e-5,),
        "n_inner": (None,), "scale_attn_weights": (True,), "add_cross_attention": (False,),
        "scale_attn_by_inverse_layer_idx": (False,), "tie_word_embeddings": (True,),
    },
    names=_names(),
    layers="n_layer",
    transposed=frozenset(  # GPT-2 multiplies from the right
        f"layers.{{n}}.{matrix}.weight"
        for matrix in (
            "attention.project", "attention.output", "feedforward.inner", "feedforward.output",
        )
    ),
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),
    tied={"lm_head.weight": "wte.weight"},
)  # fmt: skip
"""Where GPT-2's published files have each tensor."""


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class GPTNextToken(LanguageModel[GPT, nn.Module]):
    """Predict the next token of a text by attention to the tokens before it."""

    made_for: ClassVar[tuple[str, ...]] = ("text",)

    hidden_size: int = 128
    """Size of an embedding and of every layer."""
    heads: int = 4
    """Heads of each attention."""
    layers: int = 4
    """Layers, of attention and a feed-forward network each."""
    context: int = 128
    """The most tokens that are read: a window of training and of evaluation."""
    dropout: float = 0.0
    """Dropout of embeddings, attention and outputs of sublayers."""

    published: ClassVar[Published | None] = GPT2
    beta2: ClassVar[float] = 0.99  # of Adam: an average over 100 updates, where runs are short

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size", "heads", "layers", "context")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def dataset(self) -> Data:
        return load(
            self.data, kind="text", batch_size=self.batch_size, seed=self.seed, tokens=self.tokens,
            vocabulary=self.vocabulary, lower=self.lower, sampler=Windows(self.context),
        )  # fmt: skip

    def model(self, data: Data) -> GPT:
        return GPT(
            data.spec["shape"][0], hidden_size=self.hidden_size, heads=self.heads,
            layers=self.layers, context=self.context, dropout=self.dropout,
        )  # fmt: skip

    def optimizers(self, model: GPT) -> dict[str, Optimizer]:
        made = super().optimizers(model)
        for group in made["main"].param_groups:
            if "betas" in group:
                group["betas"] = (group["betas"][0], self.beta2)
        return made

    def objective(self, model: GPT, batch: Batch) -> Terms:
        s, targets = batch
        x = model.norm(model.states(s)[-1]).flatten(0, 1)
        loss = chunked_cross_entropy(x, model.embedding.weight, targets.flatten())  # (6)
        return {"cross_entropy": loss}

    def metrics(self, model: GPT, batch: Batch) -> dict[str, Tensor]:
        """The cross-entropy of every token of the split, read in windows of the context."""
        return {"cross_entropy": self.losses(model, *batch)}

    def logits(
        self, model: GPT, s: Int64[Tensor, "batch time"]
    ) -> Float[Tensor, "batch time vocab"]:
        return model(s)  # type: ignore[no-any-return]  # a module's call

    def losses(
        self, model: GPT, s: Int64[Tensor, "batch time"], targets: Int64[Tensor, "batch time"]
    ) -> Float[Tensor, " tokens"]:
        loss = cross_entropy(model(s).transpose(1, 2), targets, reduction="none")
        return loss[targets != IGNORED]

    def predict(
        self,
        model: GPT,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        log_probs: bool = False,
        draw: bool = False,
        strict: bool = False,
    ) -> Sequence[dict[str, Any]]:
        """The cross-entropy a token of each line, where it follows the end of another line.

        `log_probs` gives the log-probability of each token, `draw` pictures of attention and of
        what each layer would say. A line beyond the context is cut, and `cut` says by how many
        tokens; `strict` refuses it.
        """
        tokens = Tokens.of(spec)
        first = int("\n" not in tokens.index)  # nothing predicts the first token then
        most, answers = self.context + first, []
        for line in inputs:
            if strict and len(line) > most:
                raise UserError(
                    f"a line ({len(line)} tokens) must have at most {most} where strict is true, "
                    f"because the network reads {self.context} at once; shorten it, or leave "
                    "strict out to have it cut"
                )
            read = line[:most]
            answer, losses = self.score_line(model, read, tokens)
            if len(line) > most:
                answer |= {"cut": len(line) - most}
            if log_probs:
                names = [tokens.decode([n]) for n in read[first:].tolist()]
                answer["log_probs"] = [
                    [name, -loss] for name, loss in zip(names, losses.tolist(), strict=True)
                ]
            if draw:
                answer |= draw_line(model, read[:SHOWN], tokens)
            answers.append(answer)
        return answers

    def chat(
        self,
        model: GPT,
        spec: Spec,
        *,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        length: int = 200,
    ) -> Callable[[Sequence[tuple[str, str]], torch.Generator, int], dict[str, Any]]:
        """Answers with the line that it writes after what was said, a line for each turn."""
        if length < 1:
            raise UserError(f"length ({length}) must be at least 1, the tokens of an answer")
        tokens = Tokens.of(spec)
        Draw(None, temperature, top_k, top_p)  # refuses what cannot be drawn with

        def answer(
            turns: Sequence[tuple[str, str]], random: torch.Generator, n: int
        ) -> dict[str, Any]:
            draw = Draw(random, temperature, top_k, top_p, tokens.special_numbers)
            prompt = "".join(f"{text}\n" for _, text in turns)
            whole = tokens.encode(prompt)
            logits, state = model.begin(torch.tensor([whole[-model.context :]]))
            drawn, _ = generate(
                model.step, logits, state, length, draw,
                stops=lambda row: "\n" in tokens.decode(row).lstrip(),
            )  # fmt: skip
            text = tokens.decode(drawn[0].tolist()).lstrip().partition("\n")[0]
            many = len(whole) - model.context
            return {"answer": text} | ({"cut": many} if many > 0 else {})

        return answer

    def picture_layers(self, model: GPT, data: Data, history: History) -> Figure:
        """The likeliest next token after each layer (down) at each token of unseen text (across).

        A layer says what the network would, were it the last, and a frame marks what came. The
        embedding says the token itself, because it gives the logits too.
        """
        tokens, (s, targets) = Tokens.of(data.spec), next(data.valid)
        return _draw_layers(model, s[0, :SHOWN], targets[0, :SHOWN], tokens)

    def picture_attention(
        self, model: GPT, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """What some heads of some layers read (across) at each token (down) of unseen text.

        The head that looks most at the token before has {before:.0%} of its attention there, the
        one that looks most at the first token {first:.0%}.
        """
        line = next(data.valid)[0][0, :MAPPED]
        layers, back = _attention(model, line), torch.arange(len(line))
        gap = back[:, None] - back
        shares = {
            "before": rests_on(layers, gap == 1),
            "first": rests_on(layers, (gap > 1) & (back == 0)),
        }
        return _draw_attention(model, line, Tokens.of(data.spec)), shares

    def picture_position(
        self, model: GPT, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """The mean log-probability of a token of unseen text by how many are before it.

        With {many} or more it is {gain} nats higher than with one.
        """
        totals = torch.zeros(2, self.context).double()
        for s, targets in data.valid:
            loss = cross_entropy(model(s).transpose(1, 2), targets, reduction="none")
            both = torch.stack([-loss, (targets != IGNORED).to(loss)])  # 0 where it is IGNORED
            totals += both.double().sum(1).cpu()
        starts = [2**k for k in range((self.context + 1).bit_length() - 1)]
        bins = [slice(first - 1, 2 * first - 1) for first in starts]
        mean = torch.stack([totals[0, part].sum() / totals[1, part].sum() for part in bins])
        drawn = panels(
            Panel(
                {"": (torch.tensor(starts), mean)}, "tokens before it, so many or up to twice",
                "log-probability (nats)", log="x",
            ),
            width=6.5, height=3.0,
        )  # fmt: skip
        return drawn, {"many": str(starts[-1]), "gain": f"{mean[-1] - mean[0]:.2f}"}

    def tiny(self) -> Self:
        return replace(super().tiny(), heads=2, context=min(self.context, 16))


def draw_line(model: GPT, line: Int64[Tensor, " tokens"], tokens: Tokens) -> dict[str, Figure]:
    """Attention, and what each layer would say, for the first tokens of a line."""
    following = torch.cat([line[1:], line.new_full((1,), IGNORED)])
    return {
        "attention": _draw_attention(model, line[:MAPPED], tokens),
        "layers": _draw_layers(model, line, following, tokens),
    }


def _draw_attention(model: GPT, line: Tensor, tokens: Tokens) -> Figure:
    return head_maps(_attention(model, line), [tokens.vocabulary[n] for n in line.tolist()])


def _attention(model: GPT, line: Tensor) -> list[Float[Tensor, "heads queries keys"]]:
    with record_weights(model) as found:
        model(line[None])
    return [weights[0][0].cpu() for weights in found.values()]


def _draw_layers(model: GPT, line: Tensor, following: Tensor, tokens: Tokens) -> Figure:
    names = tokens.vocabulary
    p, best = torch.stack([model.speak(x)[0] for x in model.states(line[None])]).softmax(2).max(2)
    return draw_lens(
        [names[n] for n in line.tolist()],
        [[names[n] for n in row] for row in best.tolist()],
        p,
        best == following,
    )


RECIPES = {
    "gpt": GPTNextToken(
        steps=600, batch_size=16, lr=3e-3, optimizer="adamw", weight_decay=0.1, warmup=50,
        schedule="cosine", floor=0.1, clip=1.0, eval_every=100,
        goal="cross_entropy <= 1.8", covers=("T11",),
    ),
    "gpt-shakespeare": GPTNextToken(
        data="tinyshakespeare", hidden_size=384, heads=6, layers=6, context=256, dropout=0.3,
        steps=3500, batch_size=64, lr=1e-3, optimizer="adamw", weight_decay=0.1, warmup=100,
        schedule="cosine", floor=0.1, clip=1.0, eval_every=250,
        goal="cross_entropy <= 1.5", covers=("T11",),
    ),
    "gpt-shakespeare-small": GPTNextToken(
        data="tinyshakespeare", steps=2000, batch_size=16, lr=3e-3, context=64,
        optimizer="adamw", weight_decay=0.1, warmup=100, schedule="cosine", floor=0.1, clip=1.0,
        eval_every=500, goal="cross_entropy <= 1.92", covers=("T11",),
    ),
}  # fmt: skip
