"""`start=./gpt2/`: a folder of published files becomes a run; what does not fit is one line."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import everynet
from everynet import runs
from everynet.cli import main
from everynet.data.texts.given import is_lower_case, take_vocabulary
from everynet.data.texts.tokens import Tokens
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs.published_folder import find_vocabulary
from everynet.system.errors import UserError
from everynet.system.manifest import read_json
from tests.published_files import byte_pairs, gpt2_logits, write_gpt2, write_json

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def gpt2(tmp_path):
    """A folder of published files, and its tensors."""
    return tmp_path / "gpt2", write_gpt2(tmp_path / "gpt2")


@pytest.fixture
def begin(tmp_path):
    def run(folder, name="gpt", **fields):
        text = tmp_path / "text.txt"
        text.write_text("the cat and the dog eat the fish of the sea\n" * 60)
        given = {"steps": 0, "data": str(text), "batch_size": 2, "start": str(folder)} | fields
        return runs.run(override(find(name), given), tmp_path / "runs", device="cpu")

    return run


def test_the_run_is_the_published_network(gpt2, begin):
    folder, tensors = gpt2
    result = begin(folder)
    assert result.reached is None  # nothing was trained
    settings = read_json(result.folder / "recipe.json")["settings"]
    sizes = {n: settings[n] for n in ("hidden_size", "heads", "layers", "context", "steps")}
    assert sizes == {"hidden_size": 8, "heads": 2, "layers": 2, "context": 12, "steps": 0}
    tokens = Tokens.of(read_json(result.folder / "spec.json")["spec"])
    assert len(tokens) == 260
    assert tokens.cut("the the") == ["the", " the"]
    s = torch.tensor([tokens.encode("the cat eats")])
    torch.testing.assert_close(everynet.load(result.folder)(s), gpt2_logits(tensors, s))


def test_the_run_is_sampled_evaluated_and_begun_from(gpt2, begin):
    folder, _ = gpt2
    result = begin(folder)
    shutil.rmtree(folder)  # the run has all it needs
    trained = everynet.trained(result.folder)
    assert trained.sample(prompt="the ", n=2, length=5)[0].startswith("the ")
    assert trained.predict(["the fish"], log_probs=True)[0]["log_probs"][0][0] == "the"
    assert trained.evaluate() == pytest.approx(result.metrics)
    tuned = begin(result.folder, steps=2, hidden_size=8, heads=2, layers=2, context=12)
    one, two = (everynet.load(run.folder).state_dict() for run in (result, tuned))
    assert one.keys() == two.keys()
    assert not torch.equal(one["norm.bias"], two["norm.bias"])


def test_training_goes_on_from_the_published_weights(gpt2, begin):
    folder, tensors = gpt2
    result = begin(folder, steps=1, lr=1e-30)
    found = everynet.load(result.folder).state_dict()
    torch.testing.assert_close(found["embedding.weight"], tensors["wte.weight"])
    assert everynet.resume(result.folder, steps=2).metrics["cross_entropy"] > 0


def test_the_command_line_says_what_was_taken(gpt2, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the cat and the dog\n" * 60)
    words = ["run", "gpt", "start=./gpt2/", "steps=0", "data=text.txt", "batch_size=2"]
    assert main([*words, "--out", "runs"]) == 0
    said = "".join(capfd.readouterr())
    assert "28 of 28 tensors" in said
    assert "goal not checked: settings were changed (steps, batch_size, start, data)" in said
    assert "less than one epoch" not in said


def test_shards_are_read_together(gpt2, begin):
    folder, tensors = gpt2
    stored = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(stored)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in parts.items():
        save_file({name: stored[name] for name in held}, folder / file)
    index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
    write_json(folder / "model.safetensors.index.json", index)
    found = everynet.load(begin(folder).folder).state_dict()
    torch.testing.assert_close(found["positions.table"], tensors["wpe.weight"])
    for bad in ({"x": "../c.safetensors"}, {"x": 3}, {}, [], {"x": "pytorch_model.bin"}):
        write_json(folder / "model.safetensors.index.json", {"weight_map": bad})
        with pytest.raises(UserError, match="must hold weight_map, the file beside it"):
            begin(folder)


def test_older_files_have_no_prefix_and_half_precision(tmp_path, begin):
    tensors = write_gpt2(tmp_path / "a")
    half = {name: tensor.half() for name, tensor in tensors.items()}
    write_gpt2(tmp_path / "b", half, prefix="")
    found = everynet.load(begin(tmp_path / "b").folder).state_dict()
    torch.testing.assert_close(found["norm.weight"], half["ln_f.weight"].float())


# --------------------------------------------------------------------------------- refused


def test_a_size_that_was_typed_otherwise_is_refused(gpt2, begin):
    with pytest.raises(UserError, match=r"layers \(3\) must be 2, because start .* was trained"):
        begin(gpt2[0], layers=3)
    begin(gpt2[0], layers=2)


def test_a_network_without_a_table_refuses_published_files(gpt2, tmp_path):
    recipe = override(find("char-rnn").tiny(), {"start": str(gpt2[0])})
    with pytest.raises(UserError, match=r"because char-rnn has no table of names for published"):
        runs.run(recipe, tmp_path / "runs", device="cpu")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), r"must hold config.json beside"),
        (lambda f: (f / "config.json").write_text("{"), r"config.json is damaged: it is not JSON"),
        (lambda f: (f / "config.json").write_text("[]"), r"is damaged: it must hold an object"),
        (lambda f: (f / "vocab.json").unlink(), r"must hold its vocabulary, because rows"),
        (lambda f: (f / "merges.txt").unlink(), r"must hold its vocabulary, because rows"),
        (lambda f: (f / "model.safetensors").unlink(), r"must hold model.safetensors beside"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 99), r"is no safetensors file"),
        (
            lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
            r"has pytorch_model.bin, a pickle.*save_pretrained",
        ),
    ],
)
def test_what_is_missing_or_damaged_is_refused(gpt2, begin, damage, message):
    damage(gpt2[0])
    with pytest.raises(UserError, match=message):
        begin(gpt2[0])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "llama"}, r"model_type llama\) must be of gpt2"),
        ({"activation_function": "relu"}, r"activation_function relu.*must have.* gelu_new"),
        ({"n_inner": 99}, r"n_inner 99\) must have n_inner None"),
        ({"n_embd": 8.5}, r"hidden_size 8.5\) must be whole"),
        ({"n_layer": 10**9}, r"layers 1000000000\) must be from 0 to 1,000"),
        ({"n_layer": True}, r"layers True\) must be a number"),
        ({"n_layer": 3}, r"must hold the tensor h\.2\.ln_1\.weight.*3 layers"),
        ({"n_layer": 1}, r"holds the tensor h\.1\..*which gpt2 with 1 layers has not"),
        ({"n_positions": 16}, r"its tensor for positions.table is \[12, 8\], not \[16, 8\]"),
    ],
)
def test_another_configuration_is_refused(tmp_path, begin, config, message):
    write_gpt2(tmp_path / "gpt2", **config)
    with pytest.raises(UserError, match=message):
        begin(tmp_path / "gpt2")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("wte.weight", lambda t: t[:-1], r"embedding.weight is \[259, 8\], not \[260, 8\]"),
        ("ln_f.bias", lambda t: t * float("nan"), r"finite numbers, but norm.bias has NaN"),
        ("ln_f.bias", lambda t: t.int(), r"norm.bias is of int32; convert it"),
        ("h.0.mlp.c_fc.weight", lambda t: t[0], r"c_fc.weight \[32\]\) must be a matrix"),
        ("h.0.mlp.c_fc.weight", lambda t: t.T, r"feedforward.inner.weight is \[8, 32\], not"),
    ],
)
def test_another_tensor_is_refused(gpt2, begin, name, change, message):
    folder, tensors = gpt2
    write_gpt2(folder, tensors | {name: change(tensors[name]).contiguous()})
    with pytest.raises(UserError, match=message):
        begin(folder)


def test_steps_of_none_need_a_start(tmp_path):
    with pytest.raises(UserError, match=r"steps \(0\) must be at least 1, or 0 with start="):
        override(find("mlp-xor"), {"steps": 0})
    before = runs.run(find("mlp-xor").tiny(), tmp_path / "runs", device="cpu")
    recipe = override(find("mlp-xor").tiny(), {"start": str(before.folder), "steps": 0})
    after = runs.run(replace(recipe, changed=()), tmp_path / "runs", device="cpu")
    assert after.reached is None
    one, two = (everynet.load(run.folder).state_dict() for run in (before, after))
    assert all(torch.equal(one[name], two[name]) for name in one)


# ------------------------------------------------------------------------------ vocabularies


def tokenizer(**parts):
    """A tokenizer.json of byte pairs, as tokenizers writes it."""
    vocabulary, merges = byte_pairs()
    model = {"type": "BPE", "dropout": None, "vocab": vocabulary, "merges": [*map(list, merges)]}
    whole = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    return {
        "normalizer": None,
        "pre_tokenizer": whole,
        "model": model | parts.pop("model", {}),
    } | parts


def pieces(**parts):
    """A tokenizer.json of word pieces."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "c", "##at"]
    model = {
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": {word: n for n, word in enumerate(words)},
    }  # fmt: skip
    normal = {
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": None, "lowercase": True,
    }  # fmt: skip
    parts = {"model": model | parts.pop("model", {}), "normalizer": normal, **parts}
    return {"pre_tokenizer": {"type": "BertPreTokenizer"}, **parts}


def test_byte_pairs_of_a_tokenizer_are_those_of_two_files(gpt2, begin):
    folder, _ = gpt2
    write_json(folder / "tokenizer.json", tokenizer())
    one, two = (take_vocabulary(str(folder / name)) for name in ("tokenizer.json", "vocab.json"))
    assert one == two
    merges = [" ".join(pair) for pair in byte_pairs()[1]]  # as older files write them
    write_json(folder / "tokenizer.json", tokenizer(model={"merges": merges}))
    assert take_vocabulary(str(folder / "tokenizer.json")) == two
    (folder / "vocab.json").unlink()
    assert find_vocabulary(folder).name == "tokenizer.json"
    assert begin(folder).metrics["cross_entropy"] > 0


def test_the_token_that_ends_a_text_may_be_the_first(tmp_path):
    vocabulary, merges = byte_pairs()
    words = ["<|endoftext|>", *list(vocabulary)[:-1]]
    model = {"vocab": {word: n for n, word in enumerate(words)}}
    write_json(tmp_path / "tokenizer.json", tokenizer(model=model))
    tokens = take_vocabulary(str(tmp_path / "tokenizer.json"))
    assert [tokens.vocabulary[n] for n in tokens.encode("the the")] == ["the", " the"]
    assert len(merges) == len(tokens.merges)
    assert tokens.decode(tokens.encode("naïve ☃")) == "naïve ☃"


def test_word_pieces_of_a_tokenizer_say_whether_texts_are_lower_cased(tmp_path):
    path = tmp_path / "tokenizer.json"
    write_json(path, pieces())
    found = take_vocabulary(str(path), lower=True)
    assert found.encode("The CAT ☃") == [5, 6, 7, 1]
    assert is_lower_case(path)
    (tmp_path / "vocab.txt").write_text("[UNK]\nthe\n")
    assert is_lower_case(tmp_path / "vocab.txt")
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": False})
    assert not is_lower_case(tmp_path / "vocab.txt")
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "vocab.txt").write_text("[UNK]\nThe\n")
    assert not is_lower_case(tmp_path / "vocab.txt")


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (tokenizer(model={"type": "Unigram"}), r"model Unigram\) must be byte-level BPE or Word"),
        (tokenizer(model={"type": "WordLevel"}), r"model WordLevel\) must be byte-level BPE"),
        (tokenizer(model={"vocab": {"a": 1}}), r"an object of tokens and their numbers from 0 on"),
        (tokenizer(model={"vocab": [["a", -1.0]]}), r"an object of tokens and their numbers"),
        (tokenizer(model={"merges": [["t", "q", "h"]]}), r"merge 1 \(t q h\) must hold two tokens"),
        (tokenizer(model={"merges": 3}), r"merge 1 \(\) must hold two tokens"),
        (tokenizer(model={"merges": []}), r"must number the bytes, then the pairs"),
        (tokenizer(model={"byte_fallback": True}), r"model.byte_fallback True\) must be False"),
        (tokenizer(pre_tokenizer={"type": "Whitespace"}), r"pre_tokenizer.type Whitespace\) must"),
        (tokenizer(pre_tokenizer=None), r"pre_tokenizer.type None\) must be ByteLevel"),
        (tokenizer(normalizer={"type": "NFC"}), r"must have no normalizer"),
        (pieces(model={"continuing_subword_prefix": "@@"}), r"continuing_subword_prefix @@\) must"),
        (pieces(normalizer=None), r"normalizer.type None\) must be BertNormalizer"),
        (pieces(model={"vocab": {"a": 0}}), r"must hold the line \[UNK\]"),
    ],
)
def test_other_tokenizers_are_refused_by_name(tmp_path, stored, message):
    write_json(tmp_path / "tokenizer.json", stored)
    with pytest.raises(UserError, match=message):
        take_vocabulary(str(tmp_path / "tokenizer.json"))


def test_a_vocabulary_of_another_kind_is_named(gpt2, begin):
    folder, _ = gpt2
    (folder / "vocab.json").unlink()
    (folder / "spiece.model").write_bytes(b"x")
    with pytest.raises(UserError, match=r"spiece.model is of a kind that is not read; add it"):
        begin(folder)
