"""Pairs of texts: generated strings, captions in two languages, and talk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everynet.data.download.contents import Content
from everynet.data.sets import Form, Known, Web
from everynet.data.sets.generated import counted


def _reversal(count: str) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import phrases  # noqa: PLC0415 -- imports torch

    return phrases.reversal(*counted("reversal", count))


def _shipped(parts: Sequence[tuple[list[str], list[str]]]) -> Any:  # noqa: ANN401 -- samples
    """Pairs of a set that ships with all three parts."""
    from everynet.data.kinds.pairs import Pairs  # noqa: PLC0415 -- imports torch
    from everynet.data.split import PARTS  # noqa: PLC0415

    return Pairs(
        name="",
        parts=dict(zip(PARTS, parts, strict=True)),
        digest="",
        split="train, valid and test are those that ship with it",
        published=True,
    )


def _captions(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- samples
    """English, then the other language, of train, valid and test."""
    from everynet.data.texts.lines import cut  # noqa: PLC0415 -- imports torch

    found = [cut(content.decode()) for content in held]
    return _shipped([(found[at], found[at + 1]) for at in (0, 2, 4)])


def _irc(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- samples
    """What was said before, the messages one after another, and the answer."""
    import json  # noqa: PLC0415

    parts = []
    for content in held:
        rows = [json.loads(line) for line in content.splitlines()]
        left = [" ".join(" ".join(text.split()) for _, text in row["context"]) for row in rows]
        right = [" ".join(row["response"][1].split()) for row in rows]
        kept = [n for n in range(len(rows)) if left[n] and right[n]]
        parts.append(([left[n] for n in kept], [right[n] for n in kept]))
    return _shipped(parts)


def _chat(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- samples
    """Each turn with the one that follows it; a conversation stays in one part."""
    import json  # noqa: PLC0415
    from itertools import pairwise  # noqa: PLC0415

    from everynet.data.kinds.pairs import divided  # noqa: PLC0415 -- imports torch

    keys, pairs = [], []
    for line in held[0].splitlines():
        talk = json.loads(line)
        turns = [(speaker, " ".join(text.split())) for speaker, text in talk["turns"]]
        for (speaker, before), (other, after) in pairwise(turns):
            if speaker != other and before and after:
                keys.append(talk["id"])
                pairs.append((before, after))
    split = "by hash of the conversation, a fifth is test and a tenth of the rest is valid"
    return divided(pairs, "", keys, split)


_ENGLISH = (
    Content(
        "train.en", 1_801_238, "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"
    ),
    Content("val.en", 63_297, "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"),
    Content(
        "test_2016_flickr.en",
        62_076,
        "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    ),
)
_GERMAN = (
    Content(
        "train.de", 2_110_398, "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"
    ),
    Content("val.de", 75_981, "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"),
    Content(
        "test_2016_flickr.de",
        70_649,
        "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    ),
)
_FRENCH = (
    Content(
        "train.fr", 2_111_303, "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d"
    ),
    Content("val.fr", 73_924, "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc"),
    Content(
        "test_2016_flickr.fr",
        72_261,
        "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    ),
)

_RAW = Web("https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/{name}.gz")


def _multi30k(language: str, other: Sequence[Content]) -> Known:
    mixed = tuple(content for pair in zip(_ENGLISH, other, strict=True) for content in pair)
    return Known(
        name=f"multi30k-{other[0].name[-2:]}",
        kind="pairs",
        about=f"captions of photographs, English and {language}: 29,000 + 1,014 + 1,000 (2016)",
        licence="none stated; captions of Flickr30k: research; cite Elliott et al. (2016)",
        forms=(Form("multi30k", _captions, mixed, (_RAW,)),),
    )


_CHAT = Content(
    "chitchat.jsonl",
    13_478_037,
    "5766734430db81c37ba0bf7b2ad91a9a39f0ea2ea85facce2a85934d4b490996",
)
_IRC = (
    Content(
        "ubuntu_irc_pairs.train.jsonl",
        24_225_855,
        "0ecb92cc66b9666ab56a7db4a43ba2fb96d1fc9bf408926942c3c277a1a6601e",
    ),
    Content(
        "ubuntu_irc_pairs.dev.jsonl",
        939_088,
        "893715238fa3951b4fe1acf5ab0bbb6840e0750c633f45a33b3abebc7715d764",
    ),
    Content(
        "ubuntu_irc_pairs.test.jsonl",
        2_109_728,
        "2037f469f5d168be1678e868dddd3c5ac0209a4c9488bbf9a3c7a8d4f98c3c33",
    ),
)

SETS = (
    Known(
        "reversal",
        "pairs",
        "strings of 3 to 12 letters and their reversal; reversal:N for N of them",
        "generated: no licence needed",
        make=_reversal,
    ),
    _multi30k("German", _GERMAN),
    _multi30k("French", _FRENCH),
    Known(
        name="chitchat",
        kind="pairs",
        about="talk of two people: each turn and the answer to it",
        licence="MIT, BYU Perception, Control and Cognition Laboratory",
        forms=(Form("dialogue", _chat, (_CHAT,)),),
    ),
    Known(
        name="ubuntu-irc",
        kind="pairs",
        about="technical help: up to 6 messages and the answer, 50,590 + 2,025 + 4,063",
        licence="CC BY 4.0; cite Kummerfeld et al. (2019)",
        forms=(Form("dialogue", _irc, _IRC),),
    ),
)
