"""BLEU: by hand, by counting n-grams one by one, and as sacrebleu 2.6.0 measured it."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

import everynet
from everynet.metrics.bleu import TOKENIZERS, corpus_bleu, match_ids, match_texts, sentence_bleu
from everynet.metrics.meanings import BETTER, explain_metric

VERSION = f"version:everynet-{everynet.__version__}"
EXACT = {"rel": 0, "abs": 1e-10}

# ---------------------------------------------------------------------------------------- by hand


@pytest.mark.covers("R33")
def test_the_example_of_the_curriculum():
    """3 of 4 words, 1 of 3 pairs, 4 words for 6: 0.6065 (3/4 1/3)^(1/2) = 0.3033."""
    found = corpus_bleu(match_texts(["a red ball x"], [["a red cup and one ball"]], orders=2))
    assert found.precisions == pytest.approx((75, 100 / 3))
    assert found.brevity_penalty == pytest.approx(math.exp(-0.5))
    assert found.score == pytest.approx(100 * math.exp(-0.5) / 2)
    assert round(found.score / 100, 4) == 0.3033


@pytest.mark.covers("R33")
def test_a_word_counts_as_often_as_the_reference_that_has_it_most():
    once = match_texts(["the ball the ball"], [["the ball is red"]])
    assert once.matched.tolist() == [[2, 1, 0, 0]]
    assert once.total.tolist() == [[4, 3, 2, 1]]
    several = match_texts(["the the the"], [["the x"], ["the the y"], ["the z the"]])
    assert several.matched.tolist() == [[2, 1, 0, 0]], "neither 1, nor the 3 of all references"


@pytest.mark.parametrize(
    ("references", "closest"), [((5, 3), 3), ((3, 5), 3), ((2, 5), 5), ((4, 3), 4), ((9, 7, 8), 7)]
)
def test_the_closest_reference_counts_and_of_two_the_shorter(references, closest):
    matches = match_texts(["a b c d"], [[" ".join("abcdefghi"[:n])] for n in references])
    assert matches.reference_length.tolist() == [closest]
    expected = 1 if closest <= 4 else math.exp(1 - closest / 4)
    assert corpus_bleu(matches).brevity_penalty == pytest.approx(expected, **EXACT)


def test_orders_without_a_match_halve_again_and_again():
    """1 of 4 words; 0 of 3, 2 and 1 are 1/(2 3), 1/(4 2) and 1/(8 1)."""
    matches = match_texts(["a x y z"], [["b a c d"]])
    expected = 100 * (1 / 4 * 1 / 6 * 1 / 8 * 1 / 8) ** (1 / 4)
    assert corpus_bleu(matches).score == pytest.approx(expected, **EXACT)
    assert corpus_bleu(matches).precisions == pytest.approx((25, 100 / 6, 12.5, 12.5))


def test_a_sentence_of_two_words_has_pairs_and_a_corpus_of_them_no_score():
    matches = match_texts(["a b", "a c", "", "x y"], [["a b", "a b", "a b", "a b"]])
    assert sentence_bleu(matches).tolist() == pytest.approx([100, 50, 0, 0], **EXACT)
    assert corpus_bleu(matches).score == 0
    assert corpus_bleu(match_texts(["x y z w"], [["a"]])).precisions == (0, 0, 0, 0)


def test_nothing_at_all_has_no_score():
    matches = match_texts([""], [[""]])
    assert (corpus_bleu(matches).score, corpus_bleu(matches).brevity_penalty) == (0, 1)
    assert sentence_bleu(matches).tolist() == [0]
    assert "ratio = 0.000 hyp_len = 0 ref_len = 0" in str(corpus_bleu(matches))


# ---------------------------------------------------------------------------- against plain counts


def counted(sentence, references, orders):
    """Matches of each order, the length of the closest reference: one n-gram after the other."""
    found = []
    for n in range(1, orders + 1):
        own, *others = (
            Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1))
            for text in (sentence, *references)
        )
        found.append(sum(min(own[g], max(other[g] for other in others)) for g in own))
    return found, min(map(len, references), key=lambda r: (abs(r - len(sentence)), r))


def padded(texts, value=0):
    tensors = [torch.tensor(text, dtype=torch.int64) for text in texts]
    return pad_sequence(tensors, batch_first=True, padding_value=value)


texts = st.lists(st.integers(1, 4), max_size=9)
corpora = st.integers(1, 3).flatmap(
    lambda references: st.lists(
        st.lists(texts, min_size=references + 1, max_size=references + 1), min_size=1, max_size=5
    )
)


@settings(max_examples=25)
@given(corpora, st.integers(1, 5))
def test_matches_are_those_of_plain_counting(corpus, orders):
    sides = list(zip(*corpus, strict=True))
    matches = match_ids(padded(sides[0]), [padded(side) for side in sides[1:]], orders=orders)
    expected = [counted(own, others, orders) for own, *others in corpus]
    assert matches.matched.tolist() == [row for row, _ in expected]
    assert matches.reference_length.tolist() == [closest for _, closest in expected]
    assert matches.length.tolist() == [len(own) for own, *_ in corpus]
    written = [[" ".join(map(str, text)) for text in side] for side in sides]
    same = match_texts(written[0], written[1:], tokenize="none", orders=orders)
    assert torch.equal(same.matched, matches.matched)
    assert torch.equal(same.reference_length, matches.reference_length)
    alone = [
        sentence_bleu(match_texts([own], [[one] for one in others], tokenize="none", orders=orders))
        for own, *others in zip(*written, strict=True)
    ]
    assert torch.equal(sentence_bleu(matches), torch.cat(alone)), "alone as in company"


def test_ids_that_are_ignored_are_nowhere_and_ids_may_be_any_integers():
    hypothesis, reference = [[7, 2**62, -3, 7, 9]], [[7, 2**62, -3, 8, 9]]
    plain = match_ids(torch.tensor(hypothesis), [torch.tensor(reference)])
    assert plain.matched.tolist() == [[4, 2, 1, 0]]
    framed = torch.tensor([[2, *hypothesis[0], 3, 0, 0]])
    assert torch.equal(match_ids(framed, [framed], ignored=(0, 2, 3)).length, plain.length)
    same = match_ids(framed, [torch.tensor([[*reference[0], 3]])], ignored=(0, 2, 3))
    assert torch.equal(same.matched, plain.matched)
    assert same.signature().startswith("nrefs:1|case:mixed|eff:no|tok:ids|")
    apart = match_ids(torch.tensor([[5], [-1]]), [torch.tensor([[9], [4]])])
    assert not apart.matched.any(), "-1 in the second sentence is not 9 in the first"
    kept = match_ids(torch.tensor([[0, 1]]), [torch.tensor([[0, 1]])], ignored=())
    assert kept.length.tolist() == [2]


# ------------------------------------------------------------------------- as sacrebleu measured it

CASES = {
    "prose": (
        ["The ferry leaves at 7.30, not at 8.", "Nobody knew why the bell was ringing!",
         "We counted 1,204 birds"],
        [["The ferry leaves at 7.30 and not at 8.", "No one knew why the bell rang!",
          "We counted 1,204 birds."]],
    ),
    "two references": (
        ["the small boat sails to the island", "a man reads his letter twice", "rain again"],
        [["the little boat sails towards the island", "the man reads the letter two times",
          "it rains again"],
         ["a small boat goes to an island now", "a man is reading his letter again",
          "again there is rain today"]],
    ),
    "no match of four": (
        ["one two three nine four", "five six"], [["one two three four", "five six seven"]]
    ),
    "case": (["The North WIND blew", "The Sun Shone on"],
             [["the north wind blew", "The sun shone on"]]),
    "punctuation": (
        ["He said: \"it's 5-6 km (or 3.5 miles), A&amp;B/C_d\"...",
         "x &lt; 3,000.5 - y-z 7-8 &quot;q&quot; a..5 5..a"],
        [['He said: "it is 5 - 6 km ( or 3.5 miles ) , A & B / C _ d" . . .',
          'x < 3,000.5 - y-z 7 - 8 " q " a . .5 5 . . a']],
    ),
    "an empty sentence": (
        ["", "the end of the story"], [["nothing at all", "this is the end of the story"]]
    ),
}  # fmt: skip
MEASURED = [  # by sacrebleu 2.6.0: its BLEU of the corpus, and of each sentence in effective order
    ("prose", "13a", False, 56.37110270187229,
     [65.80370064762461, 36.55552228545123, 77.88007830714052]),
    ("prose", "none", False, 43.078986980817234,
     [44.12484512922978, 41.11336169005198, 59.460355750136046]),
    ("two references", "13a", False, 15.266452479479453,
     [23.643540225079395, 22.74009523513953, 42.88819424803536]),
    ("no match of four", "none", False, 45.499414040480396,
     [42.72870063962342, 60.653065971263366]),
    ("case", "13a", False, 10.511205190671433, [15.97357760615681, 18.99589214128981]),
    ("case", "13a", True, 100.00000000000004, [100.00000000000004, 100.00000000000004]),
    ("punctuation", "13a", False, 83.3741112988795, [86.04852743887368, 79.4069318995806]),
    ("punctuation", "none", True, 3.307962365281718, [2.141770428097284, 7.015765577419673]),
    ("an empty sentence", "13a", False, 36.78794411714425, [0.0, 67.03200460356396]),
]  # fmt: skip


@pytest.mark.covers("R33")
@pytest.mark.parametrize(("case", "tokenize", "lowercase", "corpus", "sentences"), MEASURED)
def test_scores_are_those_of_sacrebleu(case, tokenize, lowercase, corpus, sentences):
    matches = match_texts(*CASES[case], tokenize=tokenize, lowercase=lowercase)
    assert corpus_bleu(matches).score == pytest.approx(corpus, **EXACT)
    assert sentence_bleu(matches).tolist() == pytest.approx(sentences, **EXACT)


def test_the_line_is_that_of_sacrebleu_with_our_version():
    assert str(corpus_bleu(match_texts(*CASES["two references"]))) == (
        f"BLEU|nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|{VERSION} = 15.27 93.3/50.0/5.6/3.6 "
        "(BP = 0.875 ratio = 0.882 hyp_len = 15 ref_len = 17)"
    )
    lower = match_texts(*CASES["case"], tokenize="none", lowercase=True)
    said = f"nrefs:1|case:lc|eff:yes|tok:none|smooth:exp|{VERSION}"
    assert lower.signature(effective_order=True) == said
    pairs = replace(lower, matched=lower.matched[:, :2])
    assert pairs.signature() == f"nrefs:1|case:lc|eff:no|tok:none|smooth:exp|orders:2|{VERSION}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Yes, it's 3.5-4 km. ", "Yes , it's 3.5 - 4 km ."),
        ("1,000.5 a,b 5. .5", "1,000.5 a , b 5 . . 5"),
        ("a..5 a...5 5..a ,,", "a . .5 a . . . 5 5 . . a , ,"),
        ("(x/y)=[z]^2 {~} a_b `c` d@e", "( x / y ) = [ z ] ^ 2 { ~ } a _ b ` c ` d @ e"),
        ("well-known 7-8--9 -", "well-known 7 - 8 - -9 -"),
        ("&quot;A&amp;B&quot; &lt;i&gt; &amp;lt;", '" A & B " < i > <'),
        ("a<skipped>b hyphen-\nated two\nlines end-\n", "ab hyphenated two lines end-"),
        (".5 ٣.5 5,٤ é,ß 5.", ". 5 ٣ . 5 5 , ٤ é , ß 5 ."),
    ],
)
def test_13a_parts_punctuation_from_words(text, words):
    """Each written by us; what sacrebleu 2.6.0 makes of it."""
    alone, company = TOKENIZERS["13a"]([text]), TOKENIZERS["13a"]([".", text, "5"])
    assert alone[0].split() == company[1].split() == words.split()


@pytest.mark.slow
def test_random_corpora_score_as_sacrebleu_scores_them():
    peer = pytest.importorskip("sacrebleu.metrics").BLEU
    draw = random.Random(0)
    for _ in range(1000):
        words = draw.sample([*"abcdefgh", "c.", "D", "3,4", "5-6", "&amp;", "ΑΣ", ","], 6)
        sentences, references = draw.randint(1, 6), draw.randint(1, 3)
        own, *others = (
            [" ".join(draw.choices(words, k=draw.randint(0, 12))) for _ in range(sentences)]
            for _ in range(references + 1)
        )
        options = {"tokenize": draw.choice(["13a", "none"]), "lowercase": draw.random() < 0.5}
        matches = match_texts(own, others, **options)
        corpus, theirs = corpus_bleu(matches), peer(**options).corpus_score(own, others)
        assert corpus.score == pytest.approx(theirs.score, **EXACT)
        assert str(corpus) == theirs.format(signature=corpus.signature)
        alone = peer(**options, effective_order=True)
        scores = [alone.sentence_score(*one).score for one in zip(own, zip(*others, strict=True),
                  strict=True)]  # fmt: skip
        assert sentence_bleu(matches).tolist() == pytest.approx(scores, **EXACT)


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("hypotheses", "references", "options", "message"),
    [
        (["a"], [["a"]], {"tokenize": "13b"}, "unknown tokenize '13b'; did you mean 13a"),
        (["a"], [["a"]], {"orders": 0}, r"orders \(0\) must be 1 or more, the longest n-grams"),
        ([], [[]], {}, r"hypotheses \(0\) and lists of references \(1\) must each be 1 or more"),
        (["a"], [], {}, r"hypotheses \(1\) and lists of references \(0\) must each be 1 or more"),
        (
            ["a"],
            [["a"], ["a", "b"]],
            {},
            r"references 2 \(2 sentences\) must be as many as",
        ),
    ],
)
def test_texts_that_cannot_be_compared(hypotheses, references, options, message):
    with pytest.raises(ValueError, match=message):
        match_texts(hypotheses, references, **options)


def test_rows_of_ids_that_cannot_be_compared():
    ids = torch.ones(2, 3).long()
    with pytest.raises(ValueError, match=r"references 1 \(3 sentences\) must be as many as the"):
        match_ids.__wrapped__(ids, [torch.ones(3, 3).long()])
    with pytest.raises(TypeError, match=r"references must be a list of tensors.*\[references\]"):
        match_ids.__wrapped__(ids, ids)
    with pytest.raises(TypeError, match="ids must be integers, the numbers of tokens; of logits"):
        match_ids.__wrapped__(ids.float(), [ids])
    assert torch.equal(match_ids(ids.int(), [ids]).matched, match_ids(ids, [ids]).matched)


def test_a_list_that_was_forgotten_is_pointed_out():
    """A text is a sequence of texts to Python, so that sacrebleu compares it by characters."""
    for hypotheses, references in (("a b", [["a b"]]), (["a b"], ["a b"])):
        with pytest.raises(TypeError, match=r"hypotheses must be a list of texts and references"):
            match_texts(hypotheses, references)
    with pytest.raises(TypeError, match="texts must be strings, not NoneType; see match_ids"):
        match_texts.__wrapped__(["a"], [[None]])


def test_of_two_scores_the_larger_is_the_better():
    assert BETTER["bleu"] == ">="
    assert "from 0 to 100" in explain_metric({}, "bleu")
