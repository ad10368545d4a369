"""`start=RUN`: rows of weights move with the name of their token, column or class, not by place."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy

import everynet
from everynet import runs
from everynet.cli import main
from everynet.data.dataset import Data
from everynet.data.texts import bpe
from everynet.data.texts.tokens import Tokens
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.recipes.trained import Trained
from everynet.recipes.training import Training
from everynet.runs import checkpoint
from everynet.system.errors import UserError
from everynet.system.manifest import read_json
from everynet.training.loop import begin
from everynet.training.start import Start

pytestmark = pytest.mark.usefixtures("no_pictures")

ONCE = {"steps": 1, "lr": 1e-30, "eval_every": 1000, "save_every": 1000}


@pytest.fixture
def run_of(tmp_path):
    def run(name, **fields):
        recipe = find(name) if isinstance(name, str) else name
        fields = ONCE | {"seed": 7} | fields
        return runs.run(override(recipe, fields), tmp_path / "runs", device="cpu").folder

    return run


@pytest.fixture
def line_of(tmp_path, capfd):
    """The line that a run says of where it began."""

    def line(name, **fields):
        capfd.readouterr()
        recipe = find(name) if isinstance(name, str) else name
        folder = runs.run(
            override(recipe, ONCE | fields), tmp_path / "runs", device="cpu", show=True
        ).folder
        said = capfd.readouterr()
        [found] = [t for t in (said.out + said.err).splitlines() if "began from" in t]
        return found, folder

    return line


def weights(folder, step="0"):
    contents = checkpoint.read_bundle(folder / "checkpoints" / step)
    return checkpoint.weights_in(folder, contents[checkpoint.MODEL])


def kept(folder):
    return checkpoint.weights_in(folder, checkpoint.kept_weights(folder))


def spec(folder):
    return read_json(folder / "spec.json")["spec"]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


@dataclass(frozen=True, eq=False)
class Before(Trained):
    """A run of the same network that learned from other data, without its folder."""

    net: nn.Module | None = None
    data: Any = None

    def tensors(self):
        return {name: tensor.clone() for name, tensor in self.net.state_dict().items()}

    def described(self):
        return self.data


def begin_from(recipe, new, old):
    """The weights that a network for `old` has, those that one for `new` begins with, the line."""
    torch.manual_seed(7)
    net = recipe.model(Data.described(old))
    return net.state_dict(), *begin_after(recipe, new, Before("runs/a", net=net, data=old))


def begin_after(recipe, new, before):
    recipe = replace(recipe, start=before)
    start = Start.of(recipe, new)
    model = begin(recipe, Data.described(new), start=start).model
    return model.state_dict(), start.describe(model)


# ------------------------------------------------------------------------------------------- texts

CHARACTERS = {"hidden_size": 4, "window": 4, "batch_size": 2, "vocabulary": 99}


def test_rows_move_with_their_character(tmp_path, run_of, line_of):
    """Two texts with equally many characters: the row of c must not become that of D."""
    one = write(tmp_path / "one.txt", "abc\n" * 100)
    two = write(tmp_path / "two.txt", "Dacb" * 70 + "bbaa" * 30)
    before = run_of("char-rnn", data=one, **CHARACTERS)
    line, after = line_of("char-rnn", data=two, start=str(before), **CHARACTERS)
    old, new = (spec(folder)["tokens"]["vocabulary"] for folder in (before, after))
    assert len(old) == len(new) == 5
    assert old != new
    fresh = begin(override(find("char-rnn"), CHARACTERS), Data.described(spec(after)))
    for name in ("embedding.weight", "output.weight", "output.bias"):
        for row, token in enumerate(new):
            if token in old:
                assert torch.equal(weights(after)[name][row], kept(before)[name][old.index(token)])
            else:
                assert token == "D"
                assert torch.equal(weights(after)[name][row], fresh.model.state_dict()[name][row])
    assert "4 of 7 tensors whole and 3 by the names of rows" in line
    assert r"characters: 4 of 5 (new: D; left out: '\n')" in line


def test_texts_that_share_no_character_are_refused(tmp_path, run_of):
    one, two = (
        write(tmp_path / "one.txt", "aaabbcd" * 60),
        write(tmp_path / "two.txt", "wwwxxyz" * 60),
    )
    before = run_of("char-rnn", data=one, **CHARACTERS)
    with pytest.raises(
        UserError,
        match=r"start \(.*\) must share characters with the data, because rows of weights are taken"
        r" by their names: it has <unknown>, a, b, [cd], [cd], and the data has <unknown>, w, x, ",
    ):
        run_of("char-rnn", data=two, start=str(before), **CHARACTERS)


def test_characters_are_no_words(tmp_path, run_of):
    """The word a has no row in common with the character a."""
    old = {"kind": "text", "shape": [3], "tokens": {"kind": "words", "vocabulary": ["?", "a", "I"]}}
    new = old | {"tokens": {"kind": "characters", "vocabulary": ["?", "a", "I"]}}
    with pytest.raises(UserError, match=r"must share words with the data.*and the data has none; "):
        begin_from(override(find("char-rnn"), CHARACTERS), new, old)


def byte_pairs(*pairs):
    """A vocabulary of byte pairs, without learning it."""
    words = map(bpe.as_text, bpe.spelt(pairs))
    return Tokens("bpe", ("<unknown>", *words), tuple((a + 1, b + 1) for a, b in pairs)).spec


def test_byte_pairs_are_matched_by_what_they_spell():
    one, two = byte_pairs((64, 65), (66, 67)), byte_pairs((66, 67), (68, 69))
    old, new = ({"kind": "text", "shape": [259], "tokens": spec} for spec in (one, two))
    its, state, line = begin_from(override(find("char-rnn"), CHARACTERS), new, old)
    assert one["vocabulary"][-2:] != two["vocabulary"][-2:]
    for row, token in enumerate(two["vocabulary"]):
        if token in one["vocabulary"]:
            where = one["vocabulary"].index(token)
            assert torch.equal(state["embedding.weight"][row], its["embedding.weight"][where])
    assert "byte-pair tokens: 258 of 259 (new: ef; left out: ab)" in line


def test_what_a_recipe_says_of_each_word_grows_with_them():
    """`corrupted` holds how rare each word is in the description of its data."""
    recipe = replace(find("corrupted"), hidden_size=3)
    old = {
        "kind": "text", "task": "classification", "shape": [4], "classes": ["corrupted", "real"],
        "tokens": {"kind": "words", "vocabulary": ["<unknown>", "a", "b", "c"]},
        "rarity": [1.0, 2.0, 3.0, 4.0],
    }  # fmt: skip
    words = {"kind": "words", "vocabulary": ["c", "b", "a", "<unknown>"]}
    its, state, _ = begin_from(recipe, old | {"tokens": words, "rarity": [0.0] * 4}, old)
    for name in ("embedding.weight", "bias", "rarity"):
        assert torch.equal(state[name], its[name].flip(0))


def test_pairs_have_two_vocabularies():
    recipe = override(find("seq2seq"), {"embedding": 2, "hidden_size": 3})
    words = ["<pad>", "<unknown>", "<start>", "<end>", "a", "b"]
    old = {
        "kind": "pairs", "task": "translation", "shape": [], "classes": [],
        "tokens": {"kind": "words", "vocabulary": words},
        "target_tokens": {"kind": "words", "vocabulary": [*words, "c"]},
    }  # fmt: skip
    new = old | {
        "tokens": {"kind": "words", "vocabulary": words[::-1], "special": words[:4]},
        "target_tokens": {"kind": "words", "vocabulary": ["c", *words], "special": words[:4]},
    }
    its, state, line = begin_from(recipe, new, old)
    assert torch.equal(state["source.weight"], its["source.weight"].flip(0))
    for name in ("target.weight", "output.weight", "output.bias"):
        assert torch.equal(state[name], its[name].roll(1, 0))
    assert "words: 6 of 6; target words: 7 of 7" in line


def test_labelled_texts_have_words_and_classes():
    recipe = override(find("text-cnn"), {"embedding": 2, "filters": 2})
    words = ["<pad>", "<unknown>", "<start>", "<end>", "a", "b"]
    old = {
        "kind": "labelled", "task": "classification", "shape": [], "classes": ["bad", "good"],
        "tokens": {"kind": "words", "vocabulary": words},
    }  # fmt: skip
    turned = {"kind": "words", "vocabulary": words[::-1]}
    its, state, _ = begin_from(recipe, old | {"tokens": turned, "classes": ["good", "bad"]}, old)
    for name in ("words.vectors.weight", "output.weight", "output.bias"):
        assert torch.equal(state[name], its[name].flip(0))


def test_a_classifier_begins_with_the_embedding_of_a_language_model():
    """It had no classes: these are new."""
    words = {"kind": "words", "vocabulary": ["<pad>", "<unknown>", "<start>", "<end>", "a", "b"]}
    old = {"kind": "text", "task": "language", "shape": [6], "classes": [], "tokens": words}
    new = old | {"task": "classification", "classes": ["bad", "good", "so"]}
    recipe = override(find("text-cnn"), {"embedding": 2, "filters": 2})
    net = recipe.model(Data.described(new))
    state, line = begin_after(recipe, new, Before("runs/a", net=net, data=old))
    assert torch.equal(state["words.vectors.weight"], net.words.vectors.weight)
    assert "new: output.weight, output.bias" in line
    assert "the task was language" in line


# ------------------------------------------------------------------------------------------ tables


def regions(path, names, target="yes no maybe"):
    rows = [
        f"{n % 7},{names[n % len(names)]},{target.split()[n % len(target.split())]}"
        for n in range(90)
    ]
    return write(path, "\n".join(["age,Region,bought", *rows]) + "\n")


TABLE = {"hidden": (3,), "target": "bought", "passes": 0, "batch_size": 8}


def test_columns_move_with_their_category(tmp_path, run_of, line_of):
    """Region=Ost must not serve Region=Süd."""
    one = regions(tmp_path / "one.csv", ["Nord", "Ost", "West"])
    two = regions(tmp_path / "two.csv", ["Nord", "Süd", "West"])
    before = run_of("mlp", data=one, **TABLE)
    line, after = line_of("mlp", data=two, start=str(before), **TABLE)
    old, new = spec(before)["features"], spec(after)["features"]
    fresh = begin(override(find("mlp"), TABLE), Data.described(spec(after))).model.state_dict()
    first, its = weights(after)["layers.0.weight"], kept(before)["layers.0.weight"]
    assert {*new} - {*old} == {"Region=Süd"}
    for column, name in enumerate(new):
        expected = its[:, old.index(name)] if name in old else fresh["layers.0.weight"][:, column]
        assert torch.equal(first[:, column], expected)
    for name in ("layers.0.bias", "layers.1.weight", "layers.1.bias"):
        assert torch.equal(weights(after)[name], kept(before)[name])
    assert "3 of 4 tensors whole and 1 by the names of rows" in line
    assert f"columns: {len(new) - 1} of {len(new)} (new: Region=Süd; left out: Region=Ost)" in line


def test_a_table_of_other_columns_and_data_without_columns_are_refused(tmp_path, run_of):
    before = run_of("mlp", data=regions(tmp_path / "one.csv", ["Nord", "Ost"]), **TABLE)
    other = write(tmp_path / "two.csv", "x,bought\n" + "1,yes\n2,no\n3,maybe\n" * 20)
    with pytest.raises(UserError, match=r"must share columns with the data.*it has age, .*has x; "):
        run_of("mlp", data=other, start=str(before), **TABLE)
    image = {"kind": "image", "task": "classification", "shape": [1, 2, 2], "features": []}
    image |= {"classes": ["maybe", "no", "yes"], "mean": [0.0], "std": [1.0]}
    with pytest.raises(UserError, match=r"must share columns with the data.*, and the data has no"):
        begin_after(override(find("mlp"), {"hidden": (3,)}), image, Trained(str(before)))


def test_values_are_standardised_by_the_new_data_and_the_line_says_so(tmp_path, line_of, run_of):
    one = regions(tmp_path / "one.csv", ["Nord", "Ost"])
    two = write(tmp_path / "two.csv", Path(one).read_text().replace("\n0,", "\n20,"))
    before = run_of("mlp", data=one, **TABLE)
    line, after = line_of("mlp", data=two, start=str(before), **TABLE)
    assert spec(before)["mean"] != spec(after)["mean"]
    assert line.endswith("4 of 4 tensors; values are standardised by this data, not as in that run")
    line, _ = line_of("mlp", data=one, start=str(before), **TABLE)
    assert line.endswith(": 4 of 4 tensors")  # nothing else is to be said


def test_numbers_keep_the_unit_of_their_own_target(tmp_path, run_of):
    """Metrics of a regression are in the units of its target, not of that of the first run."""
    rows = [(n % 9, n % 4) for n in range(80)]
    small = write(tmp_path / "s.csv", "a,b\n" + "".join(f"{a},{b}.5\n" for a, b in rows))
    large = write(tmp_path / "l.csv", "a,b\n" + "".join(f"{a},{1000 * b}.5\n" for a, b in rows))
    fields = {"hidden": (3,), "target": "b", "passes": 0, "batch_size": 8, "task": "regression"}
    before = run_of("mlp", data=small, **fields)
    after = run_of("mlp", data=large, start=str(before), **fields)
    assert everynet.load(after).unit == pytest.approx(spec(after)["target_std"])


# ----------------------------------------------------------------------------------------- classes


@dataclass(frozen=True, kw_only=True)
class InOrder(Training):
    """A classifier of noise whose classes have an order."""

    classes: tuple[str, ...] = ("cat", "dog", "fox")
    fixed: bool = False
    """Whether the network has as many outputs whatever the classes are."""
    batch_size: int = 4
    name: str = "in-order"

    def dataset(self):
        x, y = torch.randn(24, 5), torch.arange(24) % len(self.classes)
        described = {"name": "noise", "kind": "image", "task": "classification", "shape": [5]}
        return Data(
            dict.fromkeys(("train", "valid", "test"), (x, y)),
            described | {"classes": [*self.classes]},
            self.batch_size,
            digest="noise",
        )

    def model(self, data):
        count = 3 if self.fixed else len(data.spec["classes"])
        return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, count))

    def objective(self, model, batch):
        return {"loss": cross_entropy(model(batch[0]), batch[1])}


def answers(folder, x):
    """The classes that a network names before its first update."""
    net = InOrder().model(Data.described(spec(folder)))
    net.load_state_dict(weights(folder))
    return [spec(folder)["classes"][k] for k in net(x).argmax(1).tolist()]


def test_with_classes_in_another_order_it_predicts_the_same(run_of, line_of):
    x = 9 * torch.randn(50, 5, generator=torch.Generator().manual_seed(1))
    before = run_of(InOrder())
    line, after = line_of(InOrder(classes=("fox", "cat", "dog")), start=str(before))
    assert answers(after, x) == answers(before, x)
    assert len({*answers(before, x)}) == 3
    assert "2 of 4 tensors whole and 2 by the names of rows; classes: 3 of 3" in line


def test_more_and_fewer_classes(run_of, line_of):
    before = run_of(InOrder())
    line, after = line_of(InOrder(classes=("ant", "bee", "dog", "fox")), start=str(before))
    assert "classes: 2 of 4 (new: ant, bee; left out: cat)" in line
    its, old = weights(after)["2.weight"], kept(before)["2.weight"]
    assert torch.equal(its[2:], old[1:])
    fresh = begin(InOrder(), Data.described(spec(after))).model.state_dict()["2.weight"]
    assert torch.equal(its[:2], fresh[:2])


def test_classes_that_share_nothing_are_refused(run_of):
    before = run_of(InOrder())
    with pytest.raises(UserError, match=r"must share classes with the data.*has cat, dog, fox, a"):
        run_of(InOrder(classes=("ant", "bee", "cow")), start=str(before))


def test_outputs_that_do_not_grow_with_the_classes_are_left_out(run_of, line_of):
    """Of a network of fixed size nobody knows which output is which class."""
    before = run_of(InOrder(fixed=True))
    line, after = line_of(InOrder(fixed=True, classes=("fox", "cat", "dog")), start=str(before))
    assert "2 of 4 tensors; new: 2.weight, 2.bias; left out: 2.bias, 2.weight; no weight grows" in (
        line
    )
    assert not torch.equal(weights(after)["2.weight"], kept(before)["2.weight"])


def test_one_output_for_two_classes_has_no_order_to_change(tmp_path, run_of, line_of):
    """Its sign says which class it is for: with others it is new."""
    one = regions(tmp_path / "one.csv", ["Nord", "Ost"], target="no yes")
    two = regions(tmp_path / "two.csv", ["Nord", "Ost"], target="a no")
    before = run_of("mlp", data=one, **TABLE)
    line, _ = line_of("mlp", data=two, start=str(before), **TABLE)
    assert "2 of 4 tensors" in line
    assert "new: layers.1.weight, layers.1.bias" in line


def test_a_number_does_not_begin_with_the_output_of_a_class(tmp_path, run_of, line_of):
    one = regions(tmp_path / "one.csv", ["Nord", "Ost"], target="no yes")
    two = regions(tmp_path / "two.csv", ["Nord", "Ost"], target="1.5 2.5")
    before = run_of("mlp", data=one, **TABLE)
    line, _ = line_of("mlp", data=two, start=str(before), **TABLE)
    assert "new: layers.1.weight, layers.1.bias" in line
    assert "the task was classification" in line


def test_sizes_that_were_given_count_classes_too():
    """`sizes=` fixes hidden layers; its ends are those of the data."""
    recipe = override(find("mlp"), {"sizes": (2, 4, 3)})
    old = {
        "kind": "table", "task": "classification", "shape": [2], "features": ["a", "b"],
        "classes": ["x", "y", "z"], "mean": [0.0, 0.0], "std": [1.0, 1.0],
    }  # fmt: skip
    its, state, _ = begin_from(recipe, old | {"classes": ["z", "y", "x"]}, old)
    assert torch.equal(state["layers.1.weight"], its["layers.1.weight"].flip(0))


MASKS = {"kind": "mask", "task": "segmentation", "shape": [1, 16, 16], "mean": [0.0], "std": [1.0]}


@pytest.mark.parametrize(("name", "kind"), [("unet", "mask"), ("localise", "boxes")])
def test_classes_of_masks_and_boxes(name, kind):
    old = MASKS | {"kind": kind, "classes": ["0", "10", "255"]}
    recipe = find(name).tiny()
    its, state, line = begin_from(recipe, old | {"classes": ["0", "255"]}, old)
    assert torch.equal(state["output.weight"], its["output.weight"][[0, 2]])
    assert "classes: 2 of 2 (left out: 10)" in line


@dataclass(frozen=True, kw_only=True)
class Three(InOrder):
    """It takes three classes alone."""

    def model(self, data):
        assert len(data.spec["classes"]) == 3
        return super().model(data)


def test_a_network_that_takes_these_classes_alone_is_refused():
    old = {"kind": "image", "shape": [5], "classes": ["cat", "dog", "fox"]}
    with pytest.raises(UserError, match=r"must be of the same classes in the same order, fox, cat"):
        begin_from(Three(), old | {"classes": ["fox", "cat", "dog"]}, old)


@pytest.mark.parametrize("odd", [{"classes": 3}, {"classes": [1]}, {"tokens": {"kind": "odd"}}])
def test_a_description_that_lists_no_names_is_damaged(odd):
    before = Before("runs/a", net=nn.Linear(1, 1), data=odd)
    with pytest.raises(UserError, match=r"start \(runs/a\) is damaged: spec.json must list tokens"):
        begin_after(InOrder(), {"classes": ["cat", "dog"]}, before)


# --------------------------------------------------------------------------------- files of weights


def test_of_a_file_shapes_alone_decide_and_the_line_says_so(run_of, line_of, tmp_path):
    before = run_of(InOrder())
    save_file(kept(before), tmp_path / "w.safetensors")
    line, after = line_of(InOrder(classes=("a", "b", "c")), start=str(tmp_path / "w.safetensors"))
    assert "4 of 4 tensors; a file names no classes, so that shapes alone decide" in line
    assert torch.equal(weights(after)["2.weight"], kept(before)["2.weight"])


BAD = {
    "nan": (
        lambda t: t.fill_(torch.nan),
        "must hold finite numbers, but layers.0.weight has NaN, ",
    ),
    "inf": (lambda t: t.fill_(-torch.inf), "must hold finite numbers, but layers.0.weight has NaN"),
    "large": (lambda t: t.double() + 1e300, "or a number too large for float32; give weights of a"),
    "int": (
        lambda t: t.long(),
        "must hold floating-point numbers of 16, 32 or 64 bits, but layers",
    ),
    "fp8": (lambda t: t.to(torch.float8_e4m3fn), "layers.0.weight is of float8_e4m3fn; convert it"),
    "bool": (lambda t: t > 0, "layers.0.weight is of bool; convert it and save it again"),
}


@pytest.mark.parametrize("case", BAD)
def test_weights_that_are_no_numbers_are_refused_before_training(case, tmp_path, capsys):
    spoil, words = BAD[case]
    recipe = override(find("mlp-xor"), {"hidden": "4"})
    state = recipe.model(recipe.dataset()).state_dict()
    state["layers.0.weight"] = spoil(state["layers.0.weight"])
    save_file(state, tmp_path / "w.safetensors")
    out = tmp_path / "runs"
    told = ["run", "mlp-xor", "hidden=4", f"start={tmp_path}/w.safetensors", "--out", str(out)]
    assert main(told) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"start ({tmp_path}/w.safetensors) must hold" in error
    assert words in error
    assert not out.exists()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_taken(dtype, tmp_path, run_of):
    recipe = override(find("mlp-xor"), {"hidden": "4"})
    state = {n: t.to(dtype) for n, t in recipe.model(recipe.dataset()).state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    after = run_of("mlp-xor", hidden="4", start=str(tmp_path / "w.safetensors"))
    for name, tensor in state.items():
        assert torch.equal(weights(after)[name], tensor.float())


def test_counts_of_batches_stay_whole_numbers(tmp_path):
    """A norm counts batches in an integer, which is no weight."""
    recipe = find("googlenet-cifar").tiny()
    data = Data.described({"shape": [1, 16, 16], "classes": ["a", "b"]})
    state = recipe.model(data).state_dict()
    counts = {n: t + 7 for n, t in state.items() if not t.is_floating_point()}
    assert counts
    save_file(counts, tmp_path / "w.safetensors")
    began, _ = begin_after(recipe, data.spec, Trained(str(tmp_path / "w.safetensors")))
    assert all(torch.equal(began[name], count) for name, count in counts.items())
