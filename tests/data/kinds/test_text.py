"""Texts: the parts by their rule, streams of tokens, every bad file in one line, and real texts."""

import hashlib
import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everynet.data import check, load
from everynet.data.download import fetch, store
from everynet.data.download.contents import Content
from everynet.data.kinds import named
from everynet.data.kinds.text import BLANK, LongText, divided
from everynet.data.loading import samples as load_samples
from everynet.data.samplers import Lanes, Windows
from everynet.data.sets import Form, Known, Web, everything
from everynet.data.texts.tokens import UNKNOWN, Tokens, cut
from everynet.nn.losses import IGNORED
from everynet.system.errors import UserError

KIND = named("text")
WORDS = "the cat sat on a mat and saw it\n"


def written(tmp_path, content, name="mine.txt"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parts_of(text, kind="characters"):
    return divided(LongText("mine", {"whole": text}, ""), kind)


# ---------------------------------------------------------------------------------------- parts


def by_rule(count, block):
    """Which part each token belongs to, one by one, as the rule says it."""
    rest = count - count // 10
    places = {"train": [], "valid": [], "test": list(range(rest, count))}
    for token in range(rest):
        places["valid" if token // block % 10 == 9 else "train"].append(token)
    return places


@pytest.mark.parametrize("kind", ["characters", "words"])
@pytest.mark.parametrize(
    ("count", "block"),
    [(200, 1), (2_345, 21), (45_510, 409), (45_511, 4096), (100_000, 4096)],
)
def test_parts_are_those_of_the_rule(kind, count, block):
    """45,511 tokens leave 40,960 for ten blocks of 4,096; one less and they are of a hundredth."""
    marks = [chr(0x20000 + n % 40_000) for n in range(count)]
    if kind == "words":  # every seventh is the end of a line, which needs no space
        marks = ["\n" if n % 7 == 0 else mark for n, mark in enumerate(marks)]
        text = " ".join(marks).replace(" \n ", "\n")
    else:
        text = "".join(marks)
    parts, split = parts_of(text, kind)
    expected = by_rule(count, block)
    for part, places in expected.items():
        assert cut(parts[part], kind) == [marks[n] for n in places], part
    assert f"every tenth block of {block:,} {kind} of the rest" in split


@given(st.text(st.sampled_from("ab \n"), min_size=450, max_size=700))
def test_a_word_at_a_seam_stays_a_word(text):
    parts, _ = parts_of("a b " * 100 + text, "words")
    assert sum(len(cut(part, "words")) for part in parts.values()) == len(
        cut("a b " * 100 + text, "words")
    )


def test_a_text_of_characters_is_divided_without_loss():
    text = WORDS * 500
    parts, _ = parts_of(text)
    assert sum(map(len, parts.values())) == len(text)
    assert text.endswith(parts["test"])


def test_parts_that_ship_with_a_text_are_kept():
    shipped = LongText("x", {"train": "a", "valid": "b", "test": "c"}, "", "shipped", True)
    assert divided(shipped, "words") == ({"train": "a", "valid": "b", "test": "c"}, "shipped")


# ----------------------------------------------------------------------------------------- data


def test_streams_and_their_description(tmp_path):
    path = written(tmp_path, WORDS * 100)
    data = load(path, kind="text", batch_size=4, seed=3, sampler=Lanes(16))
    tokens = Tokens.of(data.spec)
    parts, split = parts_of(WORDS * 100)
    for part, text in parts.items():
        (stream,) = data.splits[part]
        assert stream.dtype == torch.uint8
        assert tokens.decode(stream.tolist()) == text
    assert json.loads(json.dumps(data.spec)) == data.spec == {
        "name": str(path),
        "kind": "text",
        "task": "language",
        "shape": [len(set(WORDS)) + 1],
        "classes": [],
        "tokens": tokens.spec,
        "split": split,
    }  # fmt: skip
    assert data.digest == hashlib.sha256((WORDS * 100).encode()).hexdigest()
    assert (data.batch_size, data.seed, data.sampler) == (4, 3, Lanes(16))
    assert KIND.line(data.spec) == f"{path}: text, {len(tokens)} different characters"


def test_the_vocabulary_is_that_of_training_alone(tmp_path):
    path = written(tmp_path, WORDS * 100 + "Z" * 30)
    data = load(path, kind="text", batch_size=4)
    assert "Z" not in data.spec["tokens"]["vocabulary"]
    assert (data.splits["test"][0][-30:] == 0).all()
    assert data.spec["tokens"]["vocabulary"][0] == UNKNOWN
    assert not (data.splits["train"][0] == 0).any()


def test_words_and_a_small_vocabulary(tmp_path):
    path = written(tmp_path, (WORDS + "the the rare\n") * 60)
    data = load(path, kind="text", batch_size=4, tokens="words", vocabulary=4, sampler=Windows(8))
    assert data.spec["tokens"]["vocabulary"][:3] == [UNKNOWN, "the", "\n"]
    assert data.spec["shape"] == [4]
    assert (data.splits["train"][0] == 0).float().mean() > 0.3
    x, y = data.train(0)
    assert x.shape == y.shape == (4, 8)


@pytest.mark.parametrize("sampler", [Lanes(16), Windows(16)])
def test_evaluation_scores_every_token_of_a_part_once(tmp_path, sampler):
    data = load(written(tmp_path, WORDS * 100), kind="text", batch_size=5, sampler=sampler)
    for part in ("valid", "test"):
        (stream,) = data.splits[part]
        scored = [y[y != IGNORED] for _, y, *_ in data.batches(part)]
        assert torch.equal(torch.cat(scored), stream[1:].long())


def test_lanes_of_a_text_go_on_and_are_kept(tmp_path):
    data = load(written(tmp_path, WORDS * 100), kind="text", batch_size=3, sampler=Lanes(16))
    (x, y, keep), (after, _, kept) = data.train(0), data.train(1)
    assert torch.equal(x[:, 1:], y[:, :-1])
    assert torch.equal(after[:, 0], y[:, -1])
    assert (keep.tolist(), kept.tolist()) == ([0.0] * 3, [1.0] * 3)


def test_byte_order_marks_and_the_line_ends_of_windows_are_no_characters(tmp_path):
    plain = KIND.find(written(tmp_path, WORDS * 20))
    marked = KIND.find(
        written(tmp_path, b"\xef\xbb\xbf" + (WORDS * 20).replace("\n", "\r\n").encode(), "b.txt")
    )
    assert plain.parts == marked.parts
    assert plain.digest != marked.digest  # of the bytes


def test_holdout_of_a_text_of_ones_own_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"holdout .* its test part is our own choice"):
        load(written(tmp_path, WORDS * 100), kind="text", batch_size=2, holdout=False)


# ------------------------------------------------------------------------------------ bad files

BAD = {
    "empty": (b"", r"mine\.txt is empty$"),
    "mark": (b"\xef\xbb\xbf", r"mine\.txt is empty$"),
    "binary": (
        b"abc\ndef\0gh",
        r"mine\.txt must be text, but byte 7 in line 2 is NUL, as in a bin",
    ),
    "utf-16": ("é" * 300, r"must be text, but byte \d+ in line 1 is NUL|not; save it as UTF-8$"),
    "latin": (
        b"abc\n\ndef\xe9 gh",
        r"mine\.txt must be text in UTF-8, but byte 8 in line 3 \(0xe9\) is not; save it as UTF-8$",
    ),
    "after a mark": (b"\xef\xbb\xbfabc\xff", r"byte 6 in line 1 \(0xff\) is not"),
    "short": (b"a" * 199, r"mine\.txt must hold at least 200 characters, but holds 199: three par"),
}


@pytest.mark.parametrize("name", BAD)
def test_every_bad_file_is_one_line(tmp_path, name):
    content, message = BAD[name]
    content = content.encode("utf-16") if isinstance(content, str) else content
    path = written(tmp_path, content)
    with pytest.raises(UserError, match=message) as refused:
        load(path, kind="text", batch_size=2)
    assert "\n" not in str(refused.value)
    report = check(path)
    assert report.refused == str(refused.value)
    assert not report.good


def test_a_folder_and_nothing_at_all_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"must be a file, but is a folder$"):
        KIND.find(tmp_path)
    with pytest.raises(UserError, match=r"must be a file or a folder, but is not there$"):
        load(tmp_path / "none.txt", kind="text", batch_size=2)


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("everynet.data.kinds.text.MOST_BYTES", 1000)
    with pytest.raises(UserError, match=r"must be at most 1,000 bytes long$"):
        KIND.find(written(tmp_path, WORDS * 100))


def test_options_it_refuses(tmp_path):
    path = written(tmp_path, WORDS * 100)
    with pytest.raises(UserError, match=r"unknown tokens 'letters'"):
        load(path, kind="text", batch_size=2, tokens="letters")
    with pytest.raises(UserError, match=r"vocabulary \(1\) must be 0, which keeps every token"):
        load(path, kind="text", batch_size=2, vocabulary=1)
    with pytest.raises(UserError, match=r"window \(9999\) must be at most \d+, because"):
        load(path, kind="text", batch_size=2, sampler=Lanes(9999))
    with pytest.raises(UserError, match=r"target \(x\) must be left out.*text data, which has no"):
        load(path, kind="text", batch_size=2, target="x")


def test_what_looks_like_a_text(tmp_path):
    assert KIND.matches(written(tmp_path, "abc"))
    assert KIND.matches(written(tmp_path, b"\0", "binary.txt"))  # `find` says what is wrong
    assert KIND.matches(written(tmp_path, "é" * 5000, "README"))
    assert KIND.matches(written(tmp_path, "a" + "é" * 5000, "README"))  # cut inside a character
    for name, content in (
        ("a.csv", "a,b\n1,2"),
        ("a.npy", "x"),
        ("a.bin", b"ab\0cd"),
        ("a.jpg", b"\xff\xd8\xff"),
        ("empty", ""),
    ):
        assert not KIND.matches(written(tmp_path, content, name))
    assert not KIND.matches(tmp_path)
    assert not KIND.matches(tmp_path / "none.txt")
    assert not KIND.matches(tmp_path / ("x" * 5000))


def test_the_report(tmp_path):
    report = check(written(tmp_path, WORDS * 100 + "zebra zoo\n"))
    assert report.good
    assert (report.kind, report.task) == ("text", "language")
    assert report.counts == {part: len(text) for part, text in parts_of(
        WORDS * 100 + "zebra zoo\n")[0].items()}  # fmt: skip
    text = str(report)
    assert "lines      101" in text
    characters, words = len(WORDS) * 100 + 10, 10 * 100 + 3  # the end of a line is a word
    assert f"characters {characters:,}, of which train holds {len(set(WORDS))} different" in text
    assert (
        f"words      {words:,}, of which train holds 10 different ones; unknown are 0 of " in text
    )
    assert text.count("unknown are 0 of valid and 2 of test") == 1  # words
    assert text.count("unknown are 0 of valid and 4 of test") == 1  # z b r z


# ------------------------------------------------------------------------------- read and write


def test_each_line_of_a_file_is_an_input(tmp_path):
    data = load(written(tmp_path, WORDS * 100), kind="text", batch_size=2)
    asked = written(tmp_path, "the cat\n\n  \r\na mQt", "lines.txt")
    names, inputs = KIND.read([asked], data.spec)
    assert names == [f"{asked}:1", f"{asked}:4"]
    tokens = Tokens.of(data.spec)
    assert [tokens.decode(line.tolist()) for line in inputs] == [
        "the cat",
        "a m\N{REPLACEMENT CHARACTER}t",
    ]
    assert all(line.dtype == torch.int64 for line in inputs)


def test_a_word_that_is_asked_for_has_a_number_of_its_own(tmp_path):
    """In words, where no text holds it; three characters are three characters."""
    text = written(tmp_path, WORDS * 100)
    asked = written(tmp_path, "the ___ sat", "lines.txt")
    words = load(text, kind="text", batch_size=2, tokens="words")
    (line,) = KIND.read([asked], words.spec)[1]
    assert (line == BLANK).tolist() == [False, True, False]
    characters = load(text, kind="text", batch_size=2)
    assert BLANK not in KIND.read([asked], characters.spec)[1][0]
    known = {"tokens": {"kind": "words", "vocabulary": [UNKNOWN, "the", "___", "sat"]}}
    assert KIND.read([asked], known)[1][0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\nbad \xe9\n", r"lines\.txt must be text in UTF-8, but byte 9 in line 2 \(0xe9\)"),
        (b"good\n\0", r"lines\.txt must be text, but byte 5 in line 2 is NUL"),
        (b"\n \n", r"lines\.txt must hold a line that is not empty"),
        (b"", r"lines\.txt is empty"),
    ],
)
def test_bad_lines_are_named(tmp_path, content, message):
    data = load(written(tmp_path, WORDS * 100), kind="text", batch_size=2)
    with pytest.raises(UserError, match=message):
        KIND.read([written(tmp_path, content, "lines.txt")], data.spec)


def test_texts_are_written_with_an_empty_line_between_them(tmp_path):
    (path,) = KIND.write(["one\ntwo", "drei ß"], {}, tmp_path / "made")
    assert path == tmp_path / "made.txt"
    assert path.read_text("utf-8") == "one\ntwo\n\ndrei ß\n"
    with pytest.raises(UserError, match=r"must end in \.txt, because text was made"):
        KIND.write(["x"], {}, tmp_path / "made.png")


# ----------------------------------------------------------------------------------- known texts


def test_topics_are_there_and_no_paragraph_is_there_twice():
    found = load_samples("topics", kind="text")
    paragraphs = [part for part in found.parts["whole"].split("\n\n") if part.strip()]
    assert len(paragraphs) == len(set(paragraphs)) > 1000
    data = load("topics", kind="text", batch_size=8)
    assert 250_000 < sum(data.rows(part) for part in data.splits) < 2_000_000
    assert 60 < data.spec["shape"][0] < 256
    with pytest.raises(UserError, match=r"\(topics:3\) must be topics: it has a fixed number"):
        load("topics:3", kind="text", batch_size=8)


def test_a_text_without_a_source_says_where_its_file_goes(monkeypatch, tmp_path):
    monkeypatch.delenv("EVERYNET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(
        UserError,
        match=r"^text8 is not here and has no source; put text8\.first20MB \(SHA-256 e5010d\w+\), "
        r"plain or as \.gz, into .*text8$",
    ):
        load("text8", kind="text", batch_size=8)


def test_a_file_that_is_not_packed_can_be_fetched(monkeypatch, tmp_path):
    monkeypatch.delenv("EVERYNET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    content = (WORDS * 50).encode()
    written(tmp_path, content, "a.txt")
    known = Known(
        "plain",
        "text",
        "",
        "",
        forms=(
            Form(
                folder="plain",
                decode=everything()["tinyshakespeare"].forms[0].decode,
                contents=(Content("a.txt", len(content), hashlib.sha256(content).hexdigest()),),
                sources=(Web(tmp_path.as_uri() + "/{name}"),),
            ),
        ),
    )
    form, found = fetch.missing(known)
    assert [path.read_bytes() for path in found.values()] == [content]
    assert [p.name for p in (store.fetched() / "plain").iterdir() if p.name != ".lock"] == ["a.txt"]
    assert store.samples(known).parts["whole"] == WORDS * 50
    assert form.folder == "plain"


@pytest.mark.real_data
def test_shakespeare():
    data = load("tinyshakespeare", kind="text", batch_size=8)
    counts = {part: data.rows(part) + 1 for part in data.splits}
    assert sum(counts.values()) == 1_115_394
    assert counts["test"] == 111_539
    assert data.spec["shape"] == [66]
    assert not any((stream == 0).any() for (stream,) in data.splits.values())


@pytest.mark.real_data
def test_the_penn_treebank():
    data = load("ptb", kind="text", batch_size=8, tokens="words")
    counts = {part: data.rows(part) + 1 for part in data.splits}
    assert counts == {"train": 929_589, "valid": 73_760, "test": 82_430}
    assert data.spec["shape"] == [10_001]  # with the end of a line, and what is new
    assert data.splits["train"][0].dtype == torch.int16
    assert "<unk>" in data.spec["tokens"]["vocabulary"]
    assert not any((stream == 0).any() for (stream,) in data.splits.values())
    whole = load("ptb", kind="text", batch_size=8, tokens="words", holdout=False)
    assert whole.rows("train") + 1 == 929_589 + 73_760
    assert not whole.chooses


@pytest.mark.real_data
def test_text8():
    found = load_samples("text8", kind="text")
    assert found.parts["whole"].startswith(" anarchism originated as a term of abuse")
    data = load("text8", kind="text", batch_size=8)
    assert data.spec["shape"] == [28]
    assert sum(data.rows(part) + 1 for part in data.splits) == 20_000_000
    assert replace(data, batch_size=4).steps_per_epoch > 0


def test_a_gap_of_byte_pairs_or_pieces_is_one_token_where_a_vocabulary_has_a_mask():
    """The space before it belongs to what fills it; `___` inside a word is text."""
    masks = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    learned = Tokens.learned(["the cat sat " * 9], "bpe", masks, 290)
    (found,) = KIND.convert(["the ___ sat ___."], {"tokens": learned.spec})
    expected = [*learned.encode("the"), BLANK, *learned.encode(" sat"), BLANK, learned.index["."]]
    assert found.tolist() == expected
    (plain,) = KIND.convert(["a___b ____"], {"tokens": learned.spec})
    assert plain.tolist() == learned.encode("a___b ____")
    without = Tokens.learned(["the cat sat " * 9], "bpe", most=290)
    (text,) = KIND.convert(["the ___ sat"], {"tokens": without.spec})
    assert text.tolist() == without.encode("the ___ sat")
    pieces = Tokens("wordpiece", (*masks, "the", "cat", "##s", "."), special=masks)
    (found,) = KIND.convert(["the ___ cats ."], {"tokens": pieces.spec})
    assert found.tolist() == [5, BLANK, 6, 7, 8]
