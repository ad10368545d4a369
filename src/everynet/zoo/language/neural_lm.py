"""The neural language model: words become vectors, so that similar words share what is learned.

    x    = [C(w_{t-n+1}); ...; C(w_{t-1})]      (1)  embeddings of n-1 words, concatenated
    h    = tanh(H x + d)                        (2)  hidden units
    y    = U h + b                              (3)  logits of every word
    L    = -mean_t log softmax(y_t)[w_t]        (4)  cross-entropy in nats; perplexity is exp(L)

C has an embedding for each of V words, [ ; ] concatenates, and products are those of matrices.
There are V^n n-grams, and a text holds hardly any of them; but a sentence whose words are similar
to those of a known one has similar embeddings, and so a similar prediction. Lines follow each other
as in the text: unlike an n-gram model, the network sees the end of the line before.

Bengio et al. (2003), "A neural probabilistic language model", JMLR 3, 1137-1155. Unlike the paper,
there are no direct connections from x to y, and dropout regularises instead of early stopping.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64, Integer
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.kinds.text import BLANK, GAP
from everynet.data.samplers import Rows
from everynet.data.texts.tokens import UNKNOWN, Tokens
from everynet.metrics.meanings import LANGUAGE, meanings
from everynet.nn.decoding import Draw
from everynet.recipes.recipe import later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.wording import shown
from everynet.zoo.language.cloze import find_gap
from everynet.zoo.language.ngram_model import NGram, fit_trigrams
from everynet.zoo.language.pictures.ngrams import nearest_words, perplexity_by_seen_length
from everynet.zoo.recurrent.next_token import continue_prompt

NEWLINE = "\n"
AT_ONCE = 2048
"""Words of a batch in evaluation."""
SHOWN = 12
"""Words whose neighbours are shown: the commonest that are made of letters."""


class NeuralLM(nn.Module):
    """Maps the n-1 words before, the context, to logits of the next."""

    def __init__(
        self,
        vocabulary: int,
        hidden_size: int,
        *,
        context: int,
        embedding_size: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding_size)
        self.hidden = nn.Linear(context * embedding_size, hidden_size)
        self.output = nn.Linear(hidden_size, vocabulary)
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(self, s: Int64[Tensor, "batch context"]) -> Float[Tensor, "batch vocab"]:
        x = self.dropout(self.embedding(s).flatten(1))  # (1)
        h = torch.tanh(self.hidden(x))  # (2)
        y: Tensor = self.output(self.dropout(h))  # (3)
        return y


# -------- the network ends here; training and pictures follow --------


def to_int64(batch: Batch) -> Batch:
    """Tokens, which are stored in the smallest integers, as torch indexes with them."""
    return tuple([tensor.long() for tensor in batch])


def contexts(
    stream: Integer[Tensor, " words"], context: int, padding: int
) -> Integer[Tensor, "words context"]:
    """The words before each word of a stream, which is padded at its beginning."""
    return torch.cat([stream.new_full((context,), padding), stream[:-1]]).unfold(0, context, 1)


@dataclass(frozen=True, kw_only=True)
class FixedContextNextWord(Training[NeuralLM]):
    """Predict the next word of a text from the embeddings of the words before."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*LANGUAGE)

    data: str = "topics"
    """A known text, or a file in UTF-8."""
    vocabulary: int = 0
    """Largest number of words, the commonest; 0 keeps every word of the training text."""
    lower: bool = later(False)
    """Whether the text is lower-cased first, also that of a prediction or a prompt."""
    order: int = 5
    """Length n of an n-gram: one more than the context."""
    embedding_size: int = 100
    """Dimensions of a word's embedding."""
    hidden_size: int = 200
    """Hidden units."""
    dropout: float = 0.5
    """Dropout of the embeddings and of the hidden units."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "order")
        self.at_least(1, "embedding_size", "hidden_size")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def dataset(self) -> Data:
        data = load(
            self.data, kind="text", batch_size=1, seed=self.seed, tokens="words",
            vocabulary=self.vocabulary, lower=self.lower,
        )  # fmt: skip
        tokens = Tokens.of(data.spec)
        if len({*tokens.vocabulary} - {UNKNOWN, NEWLINE}) < 2:
            raise UserError(
                f"data ({shown(self.data, 60)}) must hold at least 2 different words, because "
                "one alone leaves nothing to predict; give more text"
            )
        padding = _padding(tokens)
        splits = {
            part: (contexts(stream, self.order - 1, padding).contiguous(), stream)
            for part, (stream,) in data.splits.items()
        }
        return replace(
            data,
            splits=splits,
            batch_size=self.batch_size,
            sampler=Rows(),
            prepare=to_int64,
            eval_batch_size=AT_ONCE,
        )

    def model(self, data: Data) -> NeuralLM:
        return NeuralLM(
            data.spec["shape"][0],
            self.hidden_size,
            context=self.order - 1,
            embedding_size=self.embedding_size,
            dropout=self.dropout,
        )

    def objective(self, model: NeuralLM, batch: Batch) -> Terms:
        s, word = batch
        return {"cross_entropy": cross_entropy(model(s), word)}  # (4)

    def metrics(self, model: NeuralLM, batch: Batch) -> dict[str, Tensor]:
        s, word = batch
        return {"cross_entropy": cross_entropy(model(s), word, reduction="none")}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        nats = outputs["cross_entropy"].double().mean().item()
        return {"cross_entropy": nats, "perplexity": math.exp(nats), "bits": nats / math.log(2)}

    def predict(
        self, model: NeuralLM, inputs: Sequence[Tensor], spec: Spec, *, candidates: int = 5
    ) -> Sequence[dict[str, Any]]:
        """Log-probabilities of each line and of its words, or the words that fill its gap best."""
        tokens = Tokens.of(spec)
        if not 1 <= candidates <= len(tokens):
            raise UserError(f"candidates ({candidates}) must be from 1 to the {len(tokens)} words")
        answers: list[dict[str, Any]] = []
        for line in inputs:
            if bool((line == BLANK).any()):
                answers.append(self._fill_gap(model, line, tokens, candidates))
                continue
            nats = self._word_losses(model, line[None], tokens)[0].double()
            words = [*(tokens.vocabulary[n] for n in line.tolist()), "</s>"]
            answers.append(
                {
                    "cross_entropy": nats.mean().item(),
                    "perplexity": nats.mean().exp().item(),
                    "words": [[w, -p] for w, p in zip(words, nats.tolist(), strict=False)],
                    "tokens": len(line),
                    "unknown": int((line == tokens.index[UNKNOWN]).sum()),
                }
            )
        return answers

    def _word_losses(
        self, model: NeuralLM, lines: Tensor, tokens: Tokens
    ) -> Float[Tensor, "lines words"]:
        """Cross-entropy of every word of lines of one length, and of the end of a line."""
        end, context = _padding(tokens), self.order - 1
        if tokens.vocabulary[end] == NEWLINE:
            lines = torch.cat([lines, lines.new_full((len(lines), 1), end)], 1)
        before = torch.cat([lines.new_full((len(lines), context), end), lines[:, :-1]], 1)
        rows = before.unfold(1, context, 1).flatten(0, 1)
        batches = zip(rows.split(AT_ONCE), lines.flatten().split(AT_ONCE), strict=True)
        losses = [cross_entropy(model(s), word, reduction="none") for s, word in batches]
        return torch.cat(losses).view(lines.shape)

    def _fill_gap(
        self, model: NeuralLM, line: Tensor, tokens: Tokens, candidates: int
    ) -> dict[str, Any]:
        """The words that make the line most probable, of the 500 most probable after the left."""
        end, gap = _padding(tokens), find_gap(line)
        before = torch.cat([line.new_full((self.order - 1,), end), line[:gap]])
        logits = model(before[None, -(self.order - 1) :])[0]
        logits[[tokens.index[UNKNOWN], end]] = -math.inf
        tries = logits.topk(min(max(candidates, 500), len(tokens) - 2)).indices
        lines = torch.where(line == BLANK, tries[:, None], line)
        shares = (-self._word_losses(model, lines, tokens).double().sum(1)).softmax(0)
        best = shares.topk(min(candidates, len(tries)))
        chosen = [tokens.vocabulary[n] for n in tries[best.indices].tolist()]
        words = [GAP if n == BLANK else tokens.vocabulary[n] for n in line.tolist()]
        return {
            "filled": " ".join(words).replace(GAP, chosen[0]),
            "candidates": [list(pair) for pair in zip(chosen, best.values.tolist(), strict=True)],
        }

    def sample(
        self,
        model: NeuralLM,
        spec: Spec,
        generator: torch.Generator,
        *,
        prompt: str = "The",
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        stop: str = "",
        n: int = 3,
        length: int = 50,
    ) -> list[str]:
        """`n` texts that continue the prompt, `length` words each, or to the text `stop`."""
        tokens, context = Tokens.of(spec), self.order - 1
        draw = Draw(generator, temperature, top_k, top_p, [tokens.index[UNKNOWN]])

        def begin(s: Tensor) -> tuple[Tensor, Tensor]:
            padded = torch.cat([s.new_full((len(s), context), _padding(tokens)), s], 1)
            before = padded[:, -context:].to(model.output.weight.device)
            return model(before), before

        def step(word: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
            before = torch.cat([before[:, 1:], word[:, None]], 1)
            return model(before), before

        return continue_prompt(
            begin, step, tokens, prompt, draw=draw, n=n, length=length, stop=stop
        )

    def picture_unseen(
        self, model: NeuralLM, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Perplexity of held-out words by the longest n-gram of the training text that ends there.

        At the shortest one the network has {network:.0f} and the trigrams {trigrams:.0f}.
        """
        words = list(Tokens.of(data.spec).vocabulary)
        train, valid = (data.splits[part][1].cpu() for part in ("train", "valid"))
        ngrams = NGram(self.order, "kneser-ney").fit(train, vocabulary=words)
        length = torch.from_numpy(ngrams.score_words(valid)[1])
        outputs = [self.metrics(model, batch)["cross_entropy"] for batch in data.valid]
        nats = {
            "the network": torch.cat(outputs).cpu(),
            "Kneser-Ney, n = 3": -fit_trigrams(train, words).logprob(valid),
        }
        network, trigrams = (
            values[length == length.min()].double().mean().exp().item() for values in nats.values()
        )
        drawn = perplexity_by_seen_length(nats, length)
        return drawn, {"network": network, "trigrams": trigrams}

    def picture_neighbours(
        self, model: NeuralLM, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Common words, a row each, and the words whose vectors are nearest by the cosine (colour).

        The nearest word has a cosine of {cosine:.2f} on average, and 1 would be the same direction.
        """
        words = Tokens.of(data.spec).vocabulary
        vectors = normalize(model.embedding.weight.detach().double().cpu())
        known = [n for n, word in enumerate(words) if word.isalpha() and len(word) > 2]
        cosines = vectors[known[:SHOWN]] @ vectors[known].T
        best = cosines.topk(min(9, len(known)), 1)
        names = [[words[known[n]] for n in row] for row in best.indices.tolist()]
        return nearest_words(names, best.values), {"cosine": best.values[:, 1].mean().item()}

    def tiny(self) -> Self:
        return replace(super().tiny(), order=3, embedding_size=8, batch_size=16, vocabulary=200)


def _padding(tokens: Tokens) -> int:
    """The token before a text: the end of a line, or an unknown word where there are no lines."""
    return tokens.index.get(NEWLINE, tokens.index[UNKNOWN])


RECIPES = {
    "neural-lm": FixedContextNextWord(
        vocabulary=3000, dropout=0.4, steps=2400, batch_size=128, lr=3e-3, schedule="cosine",
        goal="perplexity <= 70", covers=("R24", "R25"),
    ),
    "neural-lm-ptb": FixedContextNextWord(
        data="ptb", order=6, embedding_size=256, hidden_size=768, steps=14_000, batch_size=512,
        optimizer="adamw", lr=2e-3, weight_decay=0.1, schedule="cosine",
        goal="perplexity < 148.28", covers=("R24", "R25"),
    ),
}  # fmt: skip
