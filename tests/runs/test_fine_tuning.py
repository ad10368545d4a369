"""A network goes from one kind of texts to another, with a vocabulary that is given."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import everynet
from everynet import runs
from everynet.data import kinds, load
from everynet.data.samplers import Lanes
from everynet.recipes.catalog import find
from everynet.recipes.settings import came_later, override
from everynet.recipes.trained import Trained
from everynet.recipes.training import Training
from everynet.runs import checkpoint, loading
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.system.manifest import read_json
from tests.runs.test_vocabulary import stopped

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ONCE = {"steps": 1, "lr": 1e-30, "eval_every": 1000, "save_every": 1000, "batch_size": 2}
PIECES = [*BERT[:1], "[unused0]", *BERT[1:], "the", "cat", "dog", "##s", "a", "sat", "ran"]


@pytest.fixture(autouse=True)
def unseen(monkeypatch):
    """Runs without pictures, which take longer than the rest."""
    monkeypatch.setattr(Job, "draw", lambda self, model: ())


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The cat sat \n the dogs RAN \n" * 60)
    return str(path)


@pytest.fixture
def labelled(tmp_path):
    path = tmp_path / "labelled.tsv"
    path.write_text("".join(f"{'xy'[n % 2]}\ta cat sat {n % 3}\n" for n in range(40)))
    return str(path)


@pytest.fixture
def pieces(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in PIECES))
    return path


def spec(folder):
    return read_json(folder / "spec.json")["spec"]


def first_weights(folder):
    contents = checkpoint.read_bundle(folder / "checkpoints" / "0")
    return checkpoint.weights_in(folder, contents[checkpoint.MODEL])


def run_of(out, recipe, **fields):
    recipe = find(recipe) if isinstance(recipe, str) else recipe
    return runs.run(override(recipe, ONCE | fields), out / "runs", device="cpu").folder


# ----------------------------------------------------------------------------------- from one kind


class Mean(nn.Module):
    """Maps tokens to logits by the mean of their embeddings."""

    def __init__(self, vocabulary, outputs):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 3)
        self.output = nn.Linear(3, outputs)

    def forward(self, x):
        return self.output(self.embedding(x.long()).mean(1))


@dataclass(frozen=True, kw_only=True)
class NextWord(Training[Mean]):
    """A language model with the special tokens of BERT."""

    data: str = ""
    """A text."""
    tokens: str = "words"
    """Tokens."""
    vocabulary: int = 0
    """Size."""

    def dataset(self):
        return load(
            self.data, kind="text", batch_size=self.batch_size, tokens=self.tokens,
            vocabulary=self.vocabulary, special=BERT, sampler=Lanes(4),
        )  # fmt: skip

    def model(self, data):
        return Mean(data.spec["shape"][0], data.spec["shape"][0])

    def objective(self, model, batch):
        return {"cross_entropy": cross_entropy(model(batch[0]), batch[1][:, -1].long())}


@dataclass(frozen=True, kw_only=True)
class ClassOfText(NextWord):
    """A classifier of texts with the special tokens of BERT."""

    def dataset(self):
        return load(
            self.data, kind="labelled", batch_size=self.batch_size, tokens=self.tokens,
            vocabulary=self.vocabulary, special=BERT,
        )  # fmt: skip

    def model(self, data):
        return Mean(len(data.spec["tokens"]["vocabulary"]), len(data.spec["classes"]))

    def objective(self, model, batch):
        return {"cross_entropy": cross_entropy(model(batch[0]), batch[2])}


def test_a_language_model_is_fine_tuned_to_classify(tmp_path, text, labelled):
    """With the vocabulary of the first, or with one of its own: rows have names, special or not."""
    before = run_of(tmp_path, NextWord(name="next"), data=text, seed=7)
    recipe = ClassOfText(name="class", data=labelled, start=Trained(str(before)))
    own = replace(recipe, vocabulary=9, changed=("vocabulary",))
    for after in (run_of(tmp_path, recipe), run_of(tmp_path, own)):
        old, new = (spec(folder)["tokens"]["vocabulary"] for folder in (before, after))
        assert old[:5] == new[:5] == [*BERT]
        its, mine = (first_weights(folder)["embedding.weight"] for folder in (before, after))
        shared = [token for token in new if token in old]
        assert len(shared) >= 7
        for token in shared:
            assert torch.equal(mine[new.index(token)], its[old.index(token)])
    assert spec(run_of(tmp_path, recipe))["tokens"] == spec(before)["tokens"]
    assert "a" in new
    assert "a" not in old


def test_special_tokens_alone_are_nothing_to_share(tmp_path, text):
    before = run_of(tmp_path, NextWord(name="next"), data=text)
    other = tmp_path / "other.txt"
    other.write_text("zz yy xx " * 100)
    recipe = NextWord(name="next", data=str(other), start=Trained(str(before)), vocabulary=9)
    with pytest.raises(UserError, match=r"must share words with the data, because rows of weights"):
        run_of(tmp_path, replace(recipe, changed=("vocabulary",)))


# ----------------------------------------------------------------------------------- word pieces


def test_a_text_is_cut_into_word_pieces_with_or_without_the_file(
    tmp_path, text, labelled, pieces, monkeypatch
):
    """Once a run has begun, its own folder is enough; other runs take the same pieces from it."""
    small = {"hidden_size": 4, "window": 4, "steps": 2, "lower": True}
    monkeypatch.chdir(tmp_path)
    recipe = override(find("char-rnn"), ONCE | small | {"data": text, "tokens": "vocab.txt"})
    whole = runs.run(recipe, tmp_path / "runs", device="cpu")
    half = stopped(recipe, tmp_path / "half")
    pieces.unlink()
    assert loading.resume(half).metrics == whole.metrics
    held = {"kind": "wordpiece", "vocabulary": PIECES, "special": [*BERT], "lower": True}
    assert spec(half)["tokens"] == held
    for folder in (half, whole.folder):
        read = read_json(folder / "spec.json")["read"]
        assert f"vocabulary of {pieces}" in [entry["name"] for entry in read]
    assert everynet.evaluate(half) == pytest.approx(whole.metrics)
    trained = everynet.trained(half)
    [answer] = trained.predict(["The CATS sat on"])
    assert (answer["tokens"], answer["unknown"]) == (5, 1)
    [said] = trained.sample(prompt="THE Cats", n=1, length=20)
    assert said.startswith("the cats")
    with pytest.raises(UserError, match=r"prompt \(a zoo\) must .* and 'zoo' is not one of them"):
        trained.sample(prompt="a zoo")
    data = load(labelled, kind="labelled", batch_size=2, tokens=str(half))
    assert data.spec["tokens"] == held


def test_special_tokens_are_never_drawn(text, pieces):
    small = {"hidden_size": 4, "window": 4, "batch_size": 2, "tokens": str(pieces)}
    recipe = override(find("char-rnn"), small | {"data": text})
    data = recipe.dataset()
    model = recipe.model(data)
    with torch.no_grad():
        model.output.bias[[PIECES.index(token) for token in BERT]] = 99.0
    [said] = recipe.sample(model, data.spec, torch.Generator(), prompt="a", n=1, length=20)
    assert len(said) > 20


@pytest.mark.parametrize("name", ["text-cnn", "sentiment"])
def test_labelled_texts_have_word_pieces_too(labelled, pieces, name):
    """A word that is dropped becomes the unknown piece, wherever the file has it."""
    recipe = override(
        find(name), {"data": labelled, "tokens": str(pieces), "batch_size": 2, "word_dropout": 0.99}
    )
    data = recipe.dataset()
    model = recipe.model(data).eval()
    inputs = kinds.of(data.spec).convert(["the cats zzz"], data.spec)
    assert inputs[0].tolist() == [6, 7, 9, 2]
    [answer] = recipe.predict(model, inputs, data.spec, words=4)
    assert answer["unknown"] == 1
    assert {*answer["words"]} <= {"the", "cat", "##s"}  # for an unknown one nothing changes
    with torch.no_grad():
        model.words.vectors.weight[1] = 9.0
    assert recipe.predict(model, inputs, data.spec, words=4) == [answer]
    torch.manual_seed(0)
    model.train()
    model.words.dropout.p = 0.0
    assert torch.equal(
        model.words(torch.full((1, 9), 7)).mode(1).values[0], model.words.vectors.weight[2]
    )


def test_pairs_have_word_pieces_too(tmp_path, pieces):
    """Sentences begin with [CLS] and end with [SEP]."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"the cat {n}\tthe dogs {n}\n" for n in range(30)))
    recipe = override(find("seq2seq"), {"data": str(path), "tokens": str(pieces), "batch_size": 2})
    data = recipe.dataset()
    model = recipe.model(data)
    assert (model.start, model.end) == (3, 4)
    assert data.train(0)[2][0].tolist() == [3, 6, 8, 9, 2, 4]
    with torch.no_grad():
        model.output.bias[4] = 99.0  # it says nothing but the end
        model.target.weight[3] = 0.0
    inputs = kinds.of(data.spec).convert(["the cats", "a dog ran"], data.spec)
    assert [answer["output"] for answer in recipe.predict(model, inputs, data.spec)] == ["", ""]
    assert model.write(torch.tensor([[6, 8]]), torch.tensor([2]), 5)[0].tolist() == [[4]]


# ---------------------------------------------------------------------------- settings of recipes


def test_a_run_in_lower_case_answers_whatever_is_written(tmp_path, text):
    fields = {"data": text, "hidden_size": 4, "window": 4, "tokens": "words", "lower": True}
    folder = run_of(tmp_path, "char-rnn", **fields)
    net = everynet.trained(folder)
    quiet, loud = net.predict(["the cat ran", "The CAT Ran"])
    assert quiet["perplexity"] == loud["perplexity"]
    assert loud["unknown"] == 0
    [said] = net.sample(prompt="THE Cat", n=1, length=3)
    assert said.startswith("the cat")
    shouted = tmp_path / "loud.txt"
    shouted.write_text("THE CAT SAT \n THE DOGS RAN \n" * 60)
    assert everynet.evaluate(folder, shouted)["perplexity"] < 20


NAMES = ("char-rnn", "neural-lm", "ngram", "corrupted", "text-cnn", "bag-of-words", "seq2seq")


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_of_texts_has_lower(name):
    """Runs made before it are read as without."""
    assert "lower" in came_later(find(name))
    recipe = find(name).tiny()
    plain, quiet = (override(recipe, {"lower": lower}).dataset() for lower in (False, True))
    assert "lower" not in plain.spec["tokens"]
    assert quiet.spec["tokens"]["lower"] is True
    words = quiet.spec["tokens"]["vocabulary"]
    assert words == [word.lower() for word in words]


@pytest.mark.parametrize("name", ["ngram", "neural-lm"])
def test_prompts_are_lower_cased(name):
    recipe = override(find(name).tiny(), {"lower": True})
    data = recipe.dataset()
    model = recipe.model(data)
    model = recipe.fit(model, data) if name == "ngram" else model
    said = recipe.sample(model, data.spec, torch.Generator(), prompt="THE", n=1, length=4)
    assert said[0].startswith("the ")


def test_source_and_target_share_a_vocabulary(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"red {n}\tROT {n}\n" for n in range(30)))
    recipe = override(find("seq2seq"), {"data": str(path), "tokens": "words", "batch_size": 2})
    assert "shared_vocabulary" in came_later(recipe)
    held = override(recipe, {"shared_vocabulary": True}).dataset().spec
    assert held["tokens"] == held["target_tokens"]
    assert {"red", "ROT"} <= {*held["tokens"]["vocabulary"]}
    apart = recipe.dataset().spec
    assert "ROT" not in apart["tokens"]["vocabulary"]
    assert "red" not in apart["target_tokens"]["vocabulary"]
