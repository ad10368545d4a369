"""Vocabularies that are given with `tokens=`: that of a run, or one of a published file.

    runs/20261118-char-lstm       the vocabulary of a run
    bert/vocab.txt                word pieces, one a line; those that continue a word begin with ##
    gpt2/vocab.json               byte pairs: the numbers of tokens; merges.txt beside it joins them
    any/tokenizer.json            either of these two in one file

A published vocabulary keeps its numbers, so that published weights fit; that of a run gets the
special tokens of the recipe in the place of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from everynet.data.texts import bpe
from everynet.data.texts.lines import cut, read
from everynet.data.texts.tokens import KINDS, STREAM, Tokens, check_kind
from everynet.system.errors import UserError
from everynet.system.manifest import parsed, read_json
from everynet.system.wording import shown

MOST = 2**20
"""Tokens of the largest published vocabulary."""
MOST_BYTES = 2**26
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The special tokens of published word pieces."""
GPT2 = "<|endoftext|>"


def take_vocabulary(
    tokens: str,
    special: Sequence[str] = STREAM,
    most: int = 0,
    *,
    lower: bool = False,
    name: str = "tokens",
) -> Tokens | None:
    """The vocabulary of a run or of a published file; None of a kind, whose tokens are learned.

    `name` says where that of a run is in the description of its data.
    """
    if tokens in KINDS or not (os.sep in tokens or os.path.exists(tokens)):
        check_kind(tokens)
        return None
    if most:
        raise UserError(
            f"vocabulary ({most}) must be 0, because a given one (tokens={tokens}) is taken as it "
            "is; do vocabulary=0"
        )
    if os.path.isfile(tokens):
        read_file = read_json_vocabulary if tokens.endswith(".json") else read_word_pieces
        return _with_special(replace(read_file(Path(tokens)), lower=lower), tokens, special)
    found = _with_special(_read_run(tokens, name), tokens, special)
    if not lower or found.lower:
        return found
    if capital := _first_capital(found):
        raise UserError(
            f"lower (true) must be false, because the vocabulary of tokens ({tokens}) has capitals "
            f"({shown(capital, 40)}), which no text in lower case holds; name a run with "
            f"lower=true, or learn a vocabulary with tokens={found.kind}"
        )
    return replace(found, lower=True)


def _first_capital(tokens: Tokens) -> str:
    """The first token that a text in lower case cannot hold; "" where there is none."""
    special = {*tokens.special}
    said = (word for word in tokens.vocabulary if word not in special)
    return next((word for word in said if word != word.lower()), "")


def _read_run(tokens: str, name: str) -> Tokens:
    """The vocabulary of a run, whose folder may come from anyone."""
    spec = read_json(Path(tokens) / "spec.json").get("spec")
    if not isinstance(spec, dict) or name not in spec:
        sort = "pairs of texts" if name != "tokens" else "a text"
        raise UserError(
            f"tokens ({tokens}) must be a run that learned from {sort}, because its vocabulary is "
            f"taken; or one of {', '.join(KINDS)}"
        )
    try:
        if not all(isinstance(word, str) for word in spec[name]["vocabulary"]):
            raise ValueError(tokens)
        found = Tokens.of(spec, name)
        if len({*found.vocabulary}) < len(found) - len(found.merges):
            raise ValueError(tokens)
        return found
    except (TypeError, KeyError, ValueError, AttributeError):
        raise UserError(
            f"tokens ({tokens}) must be a run whose vocabulary can be read, but spec.json holds "
            "one that is damaged; name another"
        ) from None


def _with_special(found: Tokens, tokens: str, special: Sequence[str]) -> Tokens:
    """The vocabulary with other special tokens in front; a published one keeps its own."""
    first = len(found.special)
    if found.kind == "wordpiece" or {*found.vocabulary[:first]} != {*found.special}:
        if first < len(special) or (len(special) > 1 and found.special_numbers[0]):
            raise UserError(
                f"tokens ({tokens}) must have special tokens in the place of "
                f"{', '.join(special)}, the first of them as token 0, because texts are filled up "
                f"with it; it has {', '.join(found.special)}: learn a vocabulary, or name another"
            )
        return found
    more = len(special) - first
    kept = (t for t in found.vocabulary[first:] if found.kind == "bpe" or t not in special)
    merges = tuple((a + more, b + more) for a, b in found.merges)
    return Tokens(found.kind, (*special, *kept), merges, (*special,), found.lower)


def read_word_pieces(path: Path) -> Tokens:
    """The word pieces of a published vocab.txt: token n is line n, counted from 0."""
    pieces = cut(read(path, MOST_BYTES))
    _check_size(path, len(pieces))
    seen: dict[str, int] = {}
    for number, piece in enumerate(pieces, 1):
        if (before := seen.setdefault(piece, number)) != number:
            raise UserError(
                f"{shown(path)}: line {number:,} ({shown(piece, 40)}) must not repeat line "
                f"{before:,}, because each line of a vocabulary is one token"
            )
    return _as_word_pieces(path, pieces)


def _as_word_pieces(path: Path, pieces: Sequence[str]) -> Tokens:
    seen = {*pieces}
    special = tuple(token for token in BERT if token in seen)
    if "[UNK]" not in seen:
        raise UserError(
            f"{shown(path)} must hold the line [UNK], the piece of unknown words, as a vocab.txt "
            "of word pieces does; name such a file"
        )
    special = special if special[:4] == BERT[:4] else ("[UNK]",)
    return Tokens("wordpiece", (*pieces,), special=special)


def read_json_vocabulary(path: Path) -> Tokens:
    """The vocabulary of a tokenizer.json, or of a vocab.json and the merges.txt beside it."""
    stored = parsed(read(path, MOST_BYTES).encode(), path)
    if isinstance(stored, dict) and isinstance(stored.get("model"), dict):
        return _read_tokenizer(path, stored)
    return read_byte_pairs(path)


def is_lower_case(path: Path) -> bool:
    """Whether texts are lower-cased for a published vocabulary, as the files beside it say."""
    if path.name == "tokenizer.json":
        stored = parsed(read(path, MOST_BYTES).encode(), path)
        normal = stored.get("normalizer") if isinstance(stored, dict) else None
        return isinstance(normal, dict) and normal.get("lowercase") is True
    if path.suffix != ".txt":
        return False
    beside = path.with_name("tokenizer_config.json")
    stored = parsed(read(beside, MOST_BYTES).encode(), beside) if beside.is_file() else {}
    lower = stored.get("do_lower_case") if isinstance(stored, dict) else None
    return lower if isinstance(lower, bool) else not _first_capital(read_word_pieces(path))


def _read_tokenizer(path: Path, stored: dict[str, Any]) -> Tokens:
    """The tokens of a tokenizer.json, if it is byte pairs of bytes or BERT's word pieces."""
    model = stored["model"]
    kind, numbers = model.get("type"), _check_numbers(path, model.get("vocab"))
    if kind == "WordPiece":
        wanted = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
        normal = stored.get("normalizer")
        lower = normal.get("lowercase") if isinstance(normal, dict) else None
        wanted |= {"lowercase": bool(lower)}
        _require_part(path, stored, "normalizer", wanted, {"strip_accents": (None, lower)})
        _require_part(path, stored, "pre_tokenizer", {"type": "BertPreTokenizer"})
        words = {"unk_token": "[UNK]", "continuing_subword_prefix": "##"}
        _require_part(path, stored, "model", words, {"max_input_chars_per_word": (100,)})
        return _as_word_pieces(path, sorted(numbers, key=numbers.__getitem__))
    if kind != "BPE":
        raise UserError(
            f"{shown(path)} (model {shown(kind, 40)}) must be byte-level BPE or WordPiece, because "
            "no other tokenizer is read; name another vocabulary"
        )
    _require_part(
        path, stored, "pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": False},
        {"use_regex": (True,)},
    )  # fmt: skip
    options: dict[str, tuple[object, ...]] = {}
    options |= dict.fromkeys(("dropout", "unk_token"), (None,))
    options |= dict.fromkeys(("continuing_subword_prefix", "end_of_word_suffix"), (None, ""))
    options |= dict.fromkeys(("byte_fallback", "ignore_merges"), (False,))
    _require_part(path, stored, "model", {}, options)
    if stored.get("normalizer") is not None:
        raise UserError(f"{shown(path)} must have no normalizer, because byte pairs keep all bytes")
    lines = model.get("merges")
    lines = [*map(_as_line, lines)] if isinstance(lines, list) else [""]
    return _as_byte_pairs(path, numbers, lines, f"{shown(path)}: merge")


def _as_line(pair: object) -> str:
    """A merge as merges.txt writes it; newer files have a list of two."""
    parts = pair if isinstance(pair, list) else [pair]
    return " ".join(part for part in parts if isinstance(part, str))


def _require_part(
    path: Path,
    stored: Mapping[str, Any],
    name: str,
    wanted: Mapping[str, object],
    others: Mapping[str, Sequence[object]] | None = None,
) -> None:
    """Refuse a part of a tokenizer.json that cuts text otherwise; `others` may be left out."""
    part = stored.get(name)
    held = part if isinstance(part, dict) else {}
    allowed = {key: (value,) for key, value in wanted.items()}
    optional = {key: values for key, values in (others or {}).items() if key in held}
    for key, values in {**allowed, **optional}.items():
        if held.get(key) not in values:
            raise UserError(
                f"{shown(path)} ({name}.{key} {shown(held.get(key), 40)}) must be "
                f"{shown(values[0], 40)}, because texts are cut in that way alone; name another "
                "vocabulary"
            )


def _check_numbers(path: Path, numbers: object) -> dict[str, int]:
    """The number of each token, if all from 0 on are there."""
    if isinstance(numbers, dict) and all(type(n) is int for n in numbers.values()):
        _check_size(path, len(numbers))
        if {*numbers.values()} == {*range(len(numbers))}:
            return numbers
    raise UserError(
        f"{shown(path)} must hold an object of tokens and their numbers from 0 on, as the "
        "vocab.json of byte pairs does; name such a file"
    )


def read_byte_pairs(path: Path) -> Tokens:
    """The byte pairs of GPT-2's vocab.json and of the merges.txt beside it."""
    numbers = _check_numbers(path, parsed(read(path, MOST_BYTES).encode(), path))
    merges = path.with_name("merges.txt")
    lines = cut(read(merges, MOST_BYTES))
    first = 1 if lines[0].startswith("#version") else 0
    return _as_byte_pairs(path, numbers, lines[first:], f"{shown(merges)}: line", 1 + first)


def _as_byte_pairs(
    path: Path, numbers: Mapping[str, int], lines: Sequence[str], where: str, start: int = 1
) -> Tokens:
    """The tokens of pairs of names, one a line; the token that ends a text is first or last."""
    pairs = []
    for number, line in enumerate(lines, start):
        match [numbers.get(part) for part in line.split(" ")]:
            case [int(first), int(second)]:
                pairs.append((first, second))
            case _:
                raise UserError(
                    f"{where} {number:,} ({shown(line, 40)}) must hold two tokens of "
                    f"{path.name} with a space between them"
                )
    before = [GPT2] if numbers.get(GPT2) == 0 else []
    after = [] if before else [GPT2]
    spelt = bpe.spelt([(a - len(before), b - len(before)) for a, b in pairs])
    names = [*before, *map(bpe.written, spelt), *after]
    if numbers != {token: n for n, token in enumerate(names)}:
        raise UserError(
            f"{shown(path)} must number the bytes, then the pairs of merges.txt in their order, "
            f"then {GPT2}, as GPT-2's does, or that first of all; other forms are not read"
        )
    words = (*before, *map(bpe.as_text, spelt), *after)
    return Tokens("bpe", words, (*pairs,), (GPT2,))


def _check_size(path: Path, count: int) -> None:
    if count > MOST:
        raise UserError(
            f"{shown(path)} ({count:,} tokens) must have at most {MOST:,}, because each is a row "
            "of weights; name a vocabulary"
        )


def note_unknown(
    tokens: Tokens | None, train: Tensor, name: str, what: str = "tokens"
) -> tuple[str, ...]:
    """How much of a training text a given vocabulary does not know; all of it is refused."""
    if tokens is None:
        return ()
    fillers = torch.tensor([n for n in tokens.special_numbers if n != tokens.unknown]).long()
    said = train[~torch.isin(train.long(), fillers)]
    new = (said == tokens.unknown).double().mean().item()
    if new == 1:
        raise UserError(
            f"tokens must be a vocabulary of texts like {name}, because the given one knows no "
            "token of them; name another, or learn one with vocabulary=N"
        )
    small = tokens.kind == "wordpiece" and not tokens.lower and not _first_capital(tokens)
    hint = "; it has no capitals, and lower=true may find more" if new and small else ""
    return (f"the vocabulary is a given one, which does not know {new:.1%} of the {what}{hint}",)
