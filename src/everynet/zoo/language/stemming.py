"""Words without their endings: the stem by Porter's rules, and the form a dictionary has.

A stem is what is left when endings are stripped by rule, a word or not (`relational`, `relate` and
`relating` are all `relat`). A lemma is a word: the one under which a dictionary has it (`ran` and
`running` are `run`).

    [C] (V C)^m [V]        every word: m is the number of times that consonants follow vowels

Porter's rules take an ending off where enough is left before it, as measured by m, in eight steps
of which each takes the longest ending that fits, or none. The lemmas are by rule and exception:
`lemmatize` holds no dictionary, knows the irregular words that are listed here and no others, and
is given the part of speech. It errs where spelling is ambiguous (`wand`, `wander`, `wanding`).

Porter (1980), "An algorithm for suffix stripping", doi:10.1108/eb046814, as printed there: without
the later rules for `-logi`, `-bli` and words of two letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from everynet.system.errors import UserError
from everynet.system.wording import unknown

_DERIVED = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize",
    "abli": "able", "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize",
    "ation": "ate", "ator": "ate", "alism": "al", "iveness": "ive", "fulness": "ful",
    "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble",
}  # fmt: skip
_FURTHER = {
    "icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": "",
}  # fmt: skip
_LAST = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion"),
    *("ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


def stem(word: str) -> str:
    """What Porter's rules leave of an English word."""
    word = word.lower()
    word = _strip_plural(word)
    word = _strip_past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    for endings in (_DERIVED, _FURTHER):
        word = _replace_suffix(word, endings)
    word = _strip_last_suffix(word)
    if word.endswith("e"):
        rest = word[:-1]
        if measure(rest) > 1 or (measure(rest) == 1 and not _ends_in_cvc(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and measure(word[:-1]) > 1 else word


def measure(word: str) -> int:
    """How often consonants follow vowels."""
    kinds = [_is_consonant(word, at) for at in range(len(word))]
    return sum(now and not before for before, now in pairwise(kinds))


def _is_consonant(word: str, at: int) -> bool:
    """Whether a letter is a consonant; y is a vowel after one."""
    if word[at] == "y":
        return at == 0 or not _is_consonant(word, at - 1)
    return word[at] not in "aeiou"


def _has_vowel(word: str) -> bool:
    return any(not _is_consonant(word, at) for at in range(len(word)))


def _ends_in_double_consonant(word: str) -> bool:
    """Whether a word ends in one consonant twice."""
    return len(word) > 1 and word[-1] == word[-2] and _is_consonant(word, len(word) - 1)


def _ends_in_cvc(word: str) -> bool:
    """Whether a word ends in consonant, vowel, consonant, the last of which is not w, x or y."""
    last = len(word) - 1
    return (
        last >= 2
        and word[-1] not in "wxy"
        and _is_consonant(word, last)
        and not _is_consonant(word, last - 1)
        and _is_consonant(word, last - 2)
    )


def _strip_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _strip_past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if measure(word[:-3]) > 0 else word
    ending = next((ending for ending in ("ed", "ing") if word.endswith(ending)), "")
    rest = word.removesuffix(ending)
    if not ending or not _has_vowel(rest):
        return word
    if rest.endswith(("at", "bl", "iz")) or (
        not _ends_in_double_consonant(rest) and measure(rest) == 1 and _ends_in_cvc(rest)
    ):
        return rest + "e"
    return rest[:-1] if _ends_in_double_consonant(rest) and rest[-1] not in "lsz" else rest


def _longest_suffix(word: str, endings: Sequence[str]) -> str:
    return max((ending for ending in endings if word.endswith(ending)), key=len, default="")


def _replace_suffix(word: str, endings: Mapping[str, str]) -> str:
    ending = _longest_suffix(word, tuple(endings))
    rest = word.removesuffix(ending)
    return rest + endings[ending] if ending and measure(rest) > 0 else word


def _strip_last_suffix(word: str) -> str:
    ending = _longest_suffix(word, _LAST)
    rest = word.removesuffix(ending)
    fits = ending != "ion" or rest.endswith(("s", "t"))
    return rest if ending and fits and measure(rest) > 1 else word


# ----------------------------------------------------------------------------------------- lemmas


def _pairs(text: str) -> dict[str, str]:
    """Each word before a colon from those after it: "go: goes went gone"."""
    rows = (row.split(":") for row in text.split(";"))
    return {form: row[0].strip() for row in rows for form in row[1].split()}


IRREGULAR: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "noun": _pairs(
            "man: men; woman: women; child: children; person: people; foot: feet; tooth: teeth; "
            "goose: geese; mouse: mice; louse: lice; ox: oxen; die: dice; penny: pence; "
            "leaf: leaves; life: lives; wife: wives; knife: knives; half: halves; wolf: wolves; "
            "shelf: shelves; self: selves; thief: thieves; loaf: loaves; calf: calves; "
            "analysis: analyses; basis: bases; crisis: crises; thesis: theses; "
            "hypothesis: hypotheses; criterion: criteria; phenomenon: phenomena; datum: data; "
            "medium: media; index: indices; matrix: matrices; vertex: vertices; axis: axes; "
            "bus: bus buses; gas: gas gases; news: news; series: series; species: species; "
            "lens: lens lenses; this: this; always: always; movie: movies; cookie: cookies; "
            "shoe: shoes; toe: toes; tie: ties; pie: pies; cache: caches"
        ),
        "verb": _pairs(
            "be: am is are was were been being; have: has had having; do: does did done; go: "
            "goes went gone; say: said; make: made; take: took taken; come: came; see: saw "
            "seen; know: knew known; get: got gotten; give: gave given; find: found; think: "
            "thought; tell: told; become: became; leave: left; feel: felt; bring: brought; "
            "begin: began begun; keep: kept; hold: held; write: wrote written; stand: stood; "
            "hear: heard; mean: meant; meet: met; run: ran; pay: paid; sit: sat; speak: spoke "
            "spoken; lead: led; grow: grew grown; lose: lost; fall: fell fallen; send: sent; "
            "build: built; understand: understood; draw: drew drawn; break: broke broken; "
            "spend: spent; rise: rose risen; drive: drove driven; buy: bought; wear: wore worn; "
            "choose: chose chosen; eat: ate eaten; fly: flew flown; forget: forgot forgotten; "
            "sell: sold; teach: taught; catch: caught; fight: fought; seek: sought; sing: sang "
            "sung; swim: swam swum; drink: drank drunk; throw: threw thrown; show: shown; "
            "sleep: slept; win: won; lie: lay lain lying; die: dying dies died; tie: tying ties "
            "tied; bite: bit bitten; hide: hid hidden; shake: shook shaken; steal: stole "
            "stolen; bind: bound; wind: wound; lend: lent; use: used using uses; agree: agreed; "
            "free: freed; see: seeing; travel: travelled travelling; cancel: cancelled "
            "cancelling; label: labelled labelling; create: created creating; add: added "
            "adding; focus: focuses; visit: visited visiting; open: opened opening; offer: "
            "offered offering; happen: happened happening; listen: listened listening; enter: "
            "entered entering; answer: answered answering; consider: considered considering; "
            "remember: remembered remembering"
        ),
        "adjective": _pairs(
            "good: better best; bad: worse worst; far: farther farthest further furthest; "
            "little: less least; many: more most; old: elder eldest; clever: clever; other: other; "
            "former: former; latter: latter; proper: proper; bitter: bitter; tender: tender; "
            "honest: honest; modest: modest; west: west; east: east; free: freer freest"
        ),
    }
)
"""The words that no rule finds, by part of speech."""
_SILENT = (
    *("c", "v", "u", "dg", "ang", "rg", "iz", "yz", "bl", "tl", "dl", "gl", "pl"),
    *("rs", "ns", "as", "is", "os", "ir", "ur", "cr"),
)
"""What seldom ends a word without an e behind it."""


def lemmatize(word: str, part: str = "noun") -> str:
    """The dictionary's form of an English word that is used as noun, verb or adjective."""
    if part not in IRREGULAR:
        raise UserError(unknown("part", part, IRREGULAR))
    word = word.lower()
    if word in IRREGULAR[part]:
        return IRREGULAR[part][word]
    if word in IRREGULAR[part].values():
        return word
    if part == "adjective":
        ending = _longest_suffix(word, ("er", "est"))
        rest = word.removesuffix(ending)
        return _restore_base(rest) if ending and len(rest) > 2 and _has_vowel(rest) else word
    if part == "verb":
        ending = _longest_suffix(word, ("ed", "ing"))
        rest = word.removesuffix(ending)
        if ending and len(rest) > 1 and _has_vowel(rest) and not word.endswith("eed"):
            return _restore_base(rest)
    return _singular(word)


def _singular(word: str) -> str:
    """Without the -s of a plural or of a verb."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes", "oes")):
        return word[:-2]
    kept = word.endswith(("ss", "us", "is")) or len(word) < 3
    return word[:-1] if word.endswith("s") and not kept else word


def _restore_base(rest: str) -> str:
    """What stood before -ed, -ing, -er or -est: one consonant for two, -y for -i, its -e again."""
    if rest.endswith("i"):
        return rest[:-1] + "y"
    if _ends_in_double_consonant(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    soft = rest.endswith(_SILENT)
    if rest.endswith(("at", "ar")):  # create and compare, but treat and appear
        soft = len(rest) > 2 and _is_consonant(rest, len(rest) - 3)
    return rest + "e" if soft or (measure(rest) == 1 and _ends_in_cvc(rest)) else rest
