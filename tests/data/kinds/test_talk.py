"""Conversations as data: no conversation in two parts, no context in two, and one's own files."""

import json
import os

import pytest
import torch

from everynet.data import load
from everynet.data.kinds import named
from everynet.data.kinds.pairs import Pairs
from everynet.data.loading import check, samples
from everynet.data.split import PARTS
from everynet.data.texts.tokens import Tokens
from everynet.system.errors import UserError

PAIRS = named("pairs")


def contexts(talk, part, turns=99):
    return {tuple(text.lower() for _, text in r.context(turns)) for r in talk.replies(part)}


def conversation_of(talk, part):
    return {tuple(reply.turns) for reply in talk.replies(part)}


def apart(talk, turns=99):
    for number, part in enumerate(PARTS):
        for other in PARTS[:number]:
            assert not contexts(talk, part, turns) & contexts(talk, other, turns)
            assert not conversation_of(talk, part) & conversation_of(talk, other)


def own(path, count=60):
    """Conversations of which many begin alike."""
    lines = [
        {"turns": [["ann", f"hello {n % 20}"], ["bob", "yes"], ["ann", f"how is {n} ?"],
                   ["bob", f"it is {n % 7} ."]]}
        for n in range(count)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_generated_conversations_stay_apart():
    talk = samples("shop-talk:300", kind="pairs")
    apart(talk)
    assert {reply.speaker for part in PARTS for reply in talk.replies(part)} == {"clerk"}
    assert talk.without_repeats(99).parts == dict(talk.parts)
    assert samples("shop-talk:300", kind="pairs").digest == talk.digest
    with pytest.raises(UserError, match="shop-talk:9 must be from shop-talk:100"):
        samples("shop-talk:9", kind="pairs")


def test_the_right_reply_follows_from_all_that_was_said():
    """One context has one reply, while many last turns have several."""
    talk = samples("shop-talk:600", kind="pairs")
    replies, last = {}, {}
    for part in PARTS:
        for reply in talk.replies(part):
            before = tuple(text for _, text in reply.context(99)[1:])
            if before:  # the greeting names the customer alone
                replies.setdefault(before, set()).add(reply.pair[1])
            last.setdefault(reply.pair[0], set()).add(reply.pair[1])
    assert all(len(found) == 1 for found in replies.values())
    assert sum(len(found) > 1 for found in last.values()) >= 4
    assert len(last["yes please"]) >= 10


def test_own_conversations_are_split_by_how_they_begin(tmp_path):
    talk = samples(own(tmp_path / "talk.jsonl"), kind="pairs")
    apart(talk)
    assert "by hash of the first turn" in talk.split
    data = load(tmp_path / "talk.jsonl", kind="pairs", batch_size=4, turns=3, words=50,
                shared_vocabulary=True)  # fmt: skip
    tokens = Tokens.of(data.spec)
    assert (data.spec["task"], data.spec["turns"], data.spec["words"]) == ("dialogue", 3, 50)
    assert data.spec["replies"][0] == "yes"
    assert len(data.spec["replies"]) == 10
    x, lengths, y, _ = data.sampler.at(data.splits["train"], torch.arange(3))
    said = [" ".join(tokens.vocabulary[n] for n in row) for row in x.tolist()]
    assert said[0].startswith("<other> hello")
    assert said[0].split("<pad>")[0].strip().endswith("<turn>")
    assert said[1].count("<turn>") == 2
    assert lengths.tolist() == [sum(n > 0 for n in row) for row in x.tolist()]
    assert tokens.decode(y[0].tolist()) == "yes"
    told = samples(tmp_path / "talk.jsonl", kind="pairs").replies("train")
    assert data.rows("train") == len(told)


def test_a_context_of_test_is_left_out_of_training(tmp_path):
    """Of a set whose conversations begin alike in all parts."""
    lines = "".join(f"hello\tanswer {n}\n" for n in range(60)) + "".join(
        f"question {n}\tanswer {n}\n" for n in range(60)
    )
    (tmp_path / "a.tsv").write_text(lines)
    talk = samples(tmp_path / "a.tsv", kind="pairs", turns=2)
    apart(talk)  # the same context is in one part
    mixed = samples(tmp_path / "a.tsv", kind="pairs")  # by rows
    assert all("hello" in mixed.parts[part][0] for part in PARTS)
    clean = mixed.without_repeats(2)
    apart(clean)
    assert clean.parts["test"] == mixed.parts["test"]
    dropped = sum(len(mixed.parts[p][0]) - len(clean.parts[p][0]) for p in PARTS)
    assert f"{dropped} contexts that another part has word for word are left out" in clean.split
    with pytest.raises(UserError, match="the valid part holds no context that no other part"):
        Pairs.divide([("hello", "answer")] * 60, "hellos").without_repeats(2)


def test_contexts_are_read_as_they_were_learned(tmp_path):
    data = load(own(tmp_path / "talk.jsonl"), kind="pairs", batch_size=4, turns=3,
                shared_vocabulary=True)  # fmt: skip
    tokens = Tokens.of(data.spec)

    def said(numbers):
        return " ".join(tokens.vocabulary[n] for n in numbers.tolist())

    (tmp_path / "c.txt").write_text("hello 3\tyes\thow is 4 ?\n")
    (tmp_path / "c.jsonl").write_text(
        '{"turns": [["u", "hello 3"], ["v", "yes"], ["u", "how is 4 ?"]]}\n'
        '{"turns": [["u", "yes"]]}\n'
    )
    (names, (line,)) = PAIRS.read([tmp_path / "c.txt"], data.spec)
    assert names == [f"{tmp_path / 'c.txt'}:1"]
    assert said(line).startswith("<other> hello 3 <turn> <self> yes <turn> <other> how is")
    _, (same, short) = PAIRS.read([tmp_path / "c.jsonl"], data.spec)
    assert same.tolist() == line.tolist()
    assert said(short) == "<other> yes <turn>"
    assert PAIRS.convert(["hello 3\tyes\thow is 4 ?"], data.spec)[0].tolist() == line.tolist()


def test_a_report_counts_conversations(tmp_path):
    report = str(check(own(tmp_path / "talk.jsonl")))
    assert "60, each in one part" in report
    assert "dialogue" in report


def test_without_turns_conversations_are_pairs_as_before(tmp_path):
    data = load(own(tmp_path / "talk.jsonl"), kind="pairs", batch_size=4)
    assert "turns" not in data.spec
    assert data.spec["task"] == "translation"


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "turns"), [("ubuntu-irc", 6), ("chitchat", 4)])
def test_published_conversations_stay_apart(name, turns):
    talk = samples(name, kind="pairs")
    clean = talk.without_repeats(turns)
    for number, part in enumerate(PARTS):
        for other in PARTS[:number]:
            assert not contexts(clean, part, turns) & contexts(clean, other, turns)
    assert clean.parts["test"] == talk.parts["test"]


@pytest.mark.real_data
def test_days_of_ubuntu_are_in_one_part():
    import gzip
    from pathlib import Path

    days = []
    for part in ("train", "dev", "test"):
        path = Path(os.environ["EVERYNET_DATA"], "dialogue", f"ubuntu_irc_pairs.{part}.jsonl.gz")
        with gzip.open(path) as lines:
            days.append({json.loads(line)["src"] for line in lines})
    assert not days[0] & days[1] | days[0] & days[2] | days[1] & days[2]
