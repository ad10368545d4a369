"""`tokens=RUN`: a text is cut into the tokens of a run, as it is by `start=RUN`."""

import json
import shutil
from contextlib import contextmanager

import pytest

import everynet
from everynet import runs
from everynet.cli import main
from everynet.data.loading import load
from everynet.data.texts.tokens import Tokens
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.recipes.stored import of_run
from everynet.runs import loading, verbs
from everynet.system.errors import Stopped, UserError
from everynet.system.manifest import read_json, sealed
from everynet.system.signals import Stop

pytestmark = pytest.mark.usefixtures("no_pictures")

SMALL = {
    "steps": 2, "eval_every": 1000, "hidden_size": 4, "window": 4, "batch_size": 2,
}  # fmt: skip


@pytest.fixture
def texts(tmp_path):
    """Two texts that share some characters; the second has D."""
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("aaabbc\n" * 60)
    two.write_text("DDDDbbca" * 60)
    return one, two


@pytest.fixture
def run_of(tmp_path):
    def run(**fields):
        recipe = override(find("char-rnn"), SMALL | fields)
        return runs.run(recipe, tmp_path / "runs", device="cpu")

    return run


def known(folder):
    return read_json(folder / "spec.json")


def folder_with(path, tokens, **others):
    """A folder of a run that holds no more than a description of its data."""
    spec = {"kind": "text", "shape": [], "classes": [], "tokens": tokens, **others}
    path.mkdir()
    about = {"spec": {n: v for n, v in spec.items() if v is not None}, "digest": "", "read": []}
    contents = {"recipe.json": b"{}", "spec.json": json.dumps(about).encode()}
    for name, content in sealed(contents).items():
        (path / name).write_bytes(content)
    return str(path)


# -------------------------------------------------------------------------------------- the kinds

SENTENCES = ("<pad>", "<unknown>", "<start>", "<end>")


def test_a_text_is_cut_as_that_of_the_run(tmp_path, texts):
    words = ["<unknown>", "c", "b", "a", "D", "z"]
    run = folder_with(tmp_path / "run", {"kind": "characters", "vocabulary": words})
    data = load(texts[1], kind="text", batch_size=2, tokens=run)
    assert data.spec["tokens"]["vocabulary"] == words
    assert data.spec["shape"] == [6]
    assert Tokens.of(data.spec).decode(data.splits["train"][0].tolist())[:8] == "DDDDbbca"
    assert data.notes == ("the vocabulary is a given one, which does not know 0.0% of the tokens",)


def test_the_share_of_unknown_tokens_is_said_and_a_strange_text_refused(tmp_path, texts):
    run = folder_with(tmp_path / "run", {"kind": "characters", "vocabulary": ["<unknown>", "D"]})
    data = load(texts[1], kind="text", batch_size=2, tokens=run)
    stream = data.splits["train"][0]
    assert 0.4 < (share := (stream == 0).double().mean().item()) < 0.5
    assert data.notes[0].endswith(f"does not know {share:.1%} of the tokens")
    with pytest.raises(
        UserError, match=r"tokens must be a vocabulary of texts like .*one.txt, because"
    ):
        load(texts[0], kind="text", batch_size=2, tokens=run)


def test_the_fillers_are_those_of_the_kind(tmp_path):
    """A vocabulary of one text serves sentences, and the other way round."""
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"good\ta b {n % 3}\nbad\tc {n}\n" for n in range(40)))
    run = folder_with(tmp_path / "run", {"kind": "words", "vocabulary": ["<unknown>", "c", "a"]})
    data = load(pairs, kind="labelled", batch_size=2, tokens=run)
    assert data.spec["tokens"]["vocabulary"] == [*SENTENCES, "c", "a"]
    back = folder_with(tmp_path / "back", data.spec["tokens"])
    text = tmp_path / "text.txt"
    text.write_text("c a b a\n" * 80)
    data = load(text, kind="text", batch_size=2, tokens=back)
    assert data.spec["tokens"]["vocabulary"] == ["<unknown>", "c", "a"]


def test_merges_of_byte_pairs_move_with_the_fillers(tmp_path, texts):
    learned = Tokens.learned(["abab cdcd"] * 3, "bpe", most=259)
    run = folder_with(tmp_path / "run", learned.spec)
    lines = tmp_path / "lines.tsv"
    lines.write_text("good\tabab cd\nbad\tcdcd ab\n" * 20)
    data = load(lines, kind="labelled", batch_size=2, tokens=run)
    moved = Tokens.of(data.spec)
    assert moved.vocabulary == (*SENTENCES, *learned.vocabulary[1:])
    assert [n - 3 for n in moved.encode("abab cd")] == learned.encode("abab cd")


def test_pairs_take_both_vocabularies(tmp_path):
    lines = tmp_path / "pairs.tsv"
    lines.write_text("".join(f"a {n}\tb a {n}\n" for n in range(40)))
    source, target = ({"kind": "words", "vocabulary": [*SENTENCES, word]} for word in "ab")
    run = folder_with(tmp_path / "run", source, target_tokens=target)
    data = load(lines, kind="pairs", batch_size=2, tokens=run)
    assert (data.spec["tokens"], data.spec["target_tokens"]) == (source, target)
    alone = folder_with(tmp_path / "alone", source)
    with pytest.raises(
        UserError, match=r"tokens \(.*alone\) must be a run that learned from pairs"
    ):
        load(lines, kind="pairs", batch_size=2, tokens=alone)
    data = load(lines, kind="pairs", batch_size=2, tokens=alone, shared_vocabulary=True)
    assert (data.spec["tokens"], data.spec["target_tokens"]) == (source, source)


def test_targets_of_which_nothing_is_known_are_refused(tmp_path):
    """Shared, the vocabulary of the sources would leave targets of unknown words alone."""
    lines = tmp_path / "pairs.tsv"
    lines.write_text("".join(f"a {n}\tx y\n" for n in range(40)))
    words = {"kind": "words", "vocabulary": [*SENTENCES, "a"]}
    run = folder_with(tmp_path / "run", words, target_tokens=words)
    with pytest.raises(
        UserError, match=r"tokens must be a vocabulary of texts like .*, because th"
    ):
        load(lines, kind="pairs", batch_size=2, tokens=run)
    lines.write_text("".join(f"a {n}\ta y\n" for n in range(40)))
    assert load(lines, kind="pairs", batch_size=2, tokens=run).notes == (
        "the vocabulary is a given one, which does not know 50.0% of the tokens",
        "the vocabulary is a given one, which does not know 50.0% of the target tokens",
    )


def test_lower_case_goes_with_a_vocabulary_or_is_refused(tmp_path, texts):
    quiet = {"kind": "characters", "vocabulary": ["<unknown>", "b", "c", "d"]}
    run = folder_with(tmp_path / "run", quiet | {"lower": True})
    data = load(texts[1], kind="text", batch_size=2, tokens=run)
    assert Tokens.of(data.spec).decode(data.splits["train"][0][:7].tolist()) == "ddddbbc"
    plain = folder_with(tmp_path / "plain", quiet)  # without capitals it loses nothing
    data = load(texts[1], kind="text", batch_size=2, tokens=plain, lower=True)
    assert data.spec["tokens"] == quiet | {"lower": True}
    cased = folder_with(tmp_path / "cased", quiet | {"vocabulary": ["<unknown>", "b", "D"]})
    with pytest.raises(
        UserError,
        match=r"lower \(true\) must be false, because the vocabulary of tokens \(.*cased\) has "
        r"capitals \(D\), .*; name a run with lower=true, or learn a vocabulary with tokens=char",
    ):
        load(texts[1], kind="text", batch_size=2, tokens=cased, lower=True)


def test_special_tokens_of_the_recipe_take_the_place_of_those_of_the_run(tmp_path, texts):
    bert = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    held = {"kind": "characters", "vocabulary": [*bert, "D", "b"], "special": [*bert]}
    run = folder_with(tmp_path / "run", held)
    data = load(texts[1], kind="text", batch_size=2, tokens=run, special=bert)
    assert data.spec["tokens"] == held
    data = load(texts[1], kind="text", batch_size=2, tokens=run)
    assert data.spec["tokens"] == {"kind": "characters", "vocabulary": ["<unknown>", "D", "b"]}


DAMAGED = {
    "a list": ["a"],
    "no vocabulary": {"kind": "words"},
    "an odd kind": {"kind": "odd", "vocabulary": ["<unknown>", "a"]},
    "numbers": {"kind": "words", "vocabulary": ["<unknown>", 3]},
    "nothing unknown": {"kind": "words", "vocabulary": ["a", "b"]},
    "a word twice": {"kind": "words", "vocabulary": ["<unknown>", "a", "a"]},
    "merges that spell nothing": {"kind": "bpe", "vocabulary": ["<unknown>"], "merges": [[1, 9]]},
    "special tokens that are not there": {
        "kind": "words", "vocabulary": ["<unknown>", "a"], "special": ["[UNK]"],
    },
    "special tokens that are lists": {
        "kind": "words", "vocabulary": ["<unknown>", "a"], "special": [["a"]],
    },
    "lower case of text": {"kind": "words", "vocabulary": ["<unknown>", "a"], "lower": "no"},
    "merges of text": {"kind": "bpe", "vocabulary": ["<unknown>"], "merges": [["a", "b"]]},
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_vocabulary_is_refused(case, tmp_path, texts):
    run = folder_with(tmp_path / "run", DAMAGED[case])
    with pytest.raises(
        UserError, match=r"tokens \(.*run\) must be a run whose vocabulary can be re"
    ):
        load(texts[0], kind="text", batch_size=2, tokens=run)


def test_other_runs_and_folders_are_refused(tmp_path, texts):
    run = folder_with(tmp_path / "run", None)
    with pytest.raises(UserError, match=r"tokens \(.*\) must be a run that learned from a text, b"):
        load(texts[0], kind="text", batch_size=2, tokens=run)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty is not a run folder: it has no recipe.json"):
        load(texts[0], kind="text", batch_size=2, tokens=str(tmp_path / "empty"))
    with pytest.raises(UserError, match=r"gone is not a run folder: it has no recipe.json"):
        load(texts[0], kind="text", batch_size=2, tokens=str(tmp_path / "gone"))
    with pytest.raises(UserError, match=r"vocabulary \(9\) must be 0, because a given one \(tok"):
        load(texts[0], kind="text", batch_size=2, tokens=run, vocabulary=9)
    with pytest.raises(UserError, match="unknown tokens 'wrods'; did you mean words"):
        load(texts[0], kind="text", batch_size=2, tokens="wrods")


# ---------------------------------------------------------------------------------------- the runs


def test_a_run_that_starts_from_a_run_takes_its_vocabulary(texts, run_of, tmp_path):
    before = run_of(data=str(texts[0])).folder
    after = run_of(data=str(texts[1]), start=str(before)).folder
    assert known(after)["spec"]["tokens"] == known(before)["spec"]["tokens"]
    about = json.loads((after / "recipe.json").read_text())
    assert about["settings"]["tokens"] == str(before.absolute())
    assert about["changed"].count("tokens") == 0
    names = [entry["name"] for entry in known(after)["read"]]
    assert f"vocabulary of {before.absolute()}" in names
    assert "the vocabulary is a given one, which does not know 55.1%" in (
        (after / "card.md").read_text()
    )


@pytest.mark.parametrize("given", [{"vocabulary": 50}, {"tokens": "characters"}])
def test_a_vocabulary_of_its_own_where_one_was_chosen(given, texts, run_of):
    before = run_of(data=str(texts[0])).folder
    after = run_of(data=str(texts[1]), start=str(before), **given).folder
    assert "D" in known(after)["spec"]["tokens"]["vocabulary"]
    assert json.loads((after / "recipe.json").read_text())["settings"]["tokens"] == "characters"
    [(name, value)] = given.items()
    assert name in of_run(after).settings_given()
    assert f" {name}={value} " in (after / "card.md").read_text().partition("| repeat with")[2]


def stopped(recipe, out):
    """The folder of a run that was stopped after its first update."""

    @contextmanager
    def soon():
        stop = Stop()
        stop.signal = 15
        yield stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verbs, "catching_signals", soon)
        with pytest.raises(Stopped):
            runs.run(recipe, out, device="cpu")
    return next(out.iterdir())


def test_it_goes_on_predicts_and_is_evaluated_without_that_run(texts, run_of, tmp_path, capsys):
    """What a run took from another is in its own folder from the first step on."""
    before = run_of(data=str(texts[0])).folder
    fields = {"data": str(texts[1]), "tokens": str(before)}
    whole = run_of(**fields)
    recipe = override(find("char-rnn"), SMALL | fields)
    half = stopped(recipe, tmp_path / "half")
    shutil.rmtree(before)
    done = loading.resume(half)
    assert done.metrics == whole.metrics
    assert known(half)["spec"] == known(whole.folder)["spec"]
    assert known(half)["read"] == known(whole.folder)["read"]
    assert loading.resume(half).metrics == whole.metrics  # also once more
    assert everynet.evaluate(half) == pytest.approx(whole.metrics)
    other = tmp_path / "other.txt"
    other.write_text("abcabc" * 9)
    assert everynet.evaluate(half, other)["cross_entropy"] > 0
    [answer] = everynet.trained(half).predict(["abD"])
    assert (answer["tokens"], answer["unknown"]) == (3, 1)
    assert loading.draw(half) == ()


def test_a_mistake_is_one_line_of_the_command_line(texts, tmp_path, capsys, monkeypatch):
    """With the path as it was typed."""
    folder_with(tmp_path / "run", None)
    monkeypatch.chdir(tmp_path)
    told = ["run", "char-rnn", f"data={texts[0]}", "tokens=run", "steps=1"]
    assert main([*told, "--out", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "tokens (run) must be a run that learned from a text" in error
    assert not (tmp_path / "runs").exists()


def test_epochs_count_tokens_of_the_run(texts, tmp_path, capsys):
    """Of byte pairs a text has as many as the vocabulary makes of it."""
    words = {"kind": "words", "vocabulary": ["<unknown>", "aaabbc", "\n"]}
    run = folder_with(tmp_path / "run", words)
    told = ["run", "char-rnn", f"data={texts[0]}", f"tokens={run}", "epochs=1", "window=4"]
    # 60 lines are too few words to be divided, which is found only where the run's kind is taken
    assert main([*told, "--out", str(tmp_path / "runs")]) == 2
    assert "must hold at least 200 words, but holds 120" in capsys.readouterr().err


def test_data_check_takes_it_too(tmp_path):
    run = folder_with(tmp_path / "run", {"kind": "characters", "vocabulary": ["<unknown>", "a"]})
    (tmp_path / "text.txt").write_text("a b c\n" * 100)
    report = everynet.data.check(tmp_path / "text.txt", tokens=run)
    assert "2 different characters" in report.facts["as numbers"]
