"""The names a user types: blocks of the zoo found in its text, lists that are whole, the stub."""

import importlib.util
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch import nn

import everynet
from everynet.recipes import catalog

ROOT = Path(__file__).parent.parent


def test_a_block_is_found_by_its_name():
    from everynet.zoo.classic.logistic import LogisticRegression
    from everynet.zoo.spiking.network import LIFNetwork
    from everynet.zoo.vision.lenet import LeNet

    assert everynet.zoo.LeNet is LeNet
    assert everynet.zoo.LIFNetwork is LIFNetwork
    assert everynet.zoo.LogisticRegression is LogisticRegression
    assert everynet.zoo.vision is importlib.import_module("everynet.zoo.vision")


@pytest.mark.parametrize("name", ["Lion", "SGD", "Adagrad", "RMSprop", "Adam", "AdamW"])
def test_an_optimiser_by_name_is_a_class_as_torchs_are(name):
    net = nn.Linear(3, 2)
    before = net.weight.detach().clone()
    optimizer = getattr(everynet.zoo, name)(net.parameters(), lr=0.1)
    assert isinstance(optimizer, torch.optim.Optimizer)
    net(torch.ones(4, 3)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(net.weight, before)
    assert name in dir(everynet.zoo)
    assert getattr(everynet.zoo, name) is getattr(
        everynet.nn if name == "Lion" else torch.optim, name
    )


def test_update_rules_have_names_of_their_own():
    from everynet.zoo.optimisation.update_rules import AdamRule, LionRule, UpdateRule

    assert everynet.zoo.AdamRule is AdamRule
    assert everynet.zoo.LionRule is LionRule
    assert not issubclass(everynet.zoo.Lion, UpdateRule)


def test_every_block_is_a_class_of_its_file_and_every_other_class_a_recipe_or_a_record():
    """What the text says is what Python says, in files that have all of these."""
    from everynet.recipes.recipe import Recipe

    texts, blocks = catalog.sources(), catalog.blocks()
    for path in ("vision/lenet", "spiking/network", "spiking/surrogate", "recurrent/bptt"):
        file = f"zoo/{path}.py"
        module = importlib.import_module("everynet." + file[:-3].replace("/", "."))
        for name in texts[file]["classes"]:
            cls = getattr(module, name)
            record = issubclass(cls, tuple) or name == "CSR"
            if issubclass(cls, Recipe) or record or name.startswith("_"):
                assert blocks.get(name) != file
            else:
                assert blocks[name] == file


def test_a_name_of_a_block_is_that_of_one_alone():
    texts, homes = catalog.sources(), defaultdict(list)
    for file, text in texts.items():
        for name, cls in text["classes"].items():
            record = {"NamedTuple", "Protocol"} & {*cls["bases"]}
            recipe = "kind" in catalog.follow_class(texts, file, name)[0]
            if file.startswith("zoo/") and not (name.startswith("_") or record or recipe):
                homes[name].append(file)
    assert len(homes) > 150
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_the_stub_is_what_the_zoo_says():
    """`python tools/zoo_stub.py` writes it anew; so does `make docs`."""
    spec = importlib.util.spec_from_file_location("zoo_stub", ROOT / "tools" / "zoo_stub.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert maker.STUB.read_text(encoding="utf-8") == maker.made()
    assert "from everynet.zoo.vision.lenet import LeNet as LeNet\n" in maker.made()


@pytest.mark.parametrize(
    ("module", "wrong", "match"),
    [
        ("everynet", "tranied", r"'everynet' has no attribute 'tranied'; did you mean trained"),
        ("everynet.zoo", "LeNett", r"'everynet.zoo' .* 'LeNett'; did you mean LeNet, "),
        ("everynet.zoo", "__nothing__", r"has no attribute '__nothing__'$"),
    ],
)
def test_a_mistyped_name_is_told_the_nearest(module, wrong, match):
    with pytest.raises(AttributeError, match=match):
        getattr(importlib.import_module(module), wrong)


def test_a_mistyped_import_is_an_import_error():
    with pytest.raises(ImportError, match="LeNett"):
        from everynet.zoo import LeNett  # noqa: F401


@pytest.mark.parametrize("name", ["everynet", "everynet.nn", "everynet.plot", "everynet.zoo"])
def test_all_and_dir_show_what_there_is(name):
    module = importlib.import_module(name)
    assert set(module.__all__) <= set(dir(module))
    assert len(set(module.__all__)) == len(module.__all__) > 20
    for word in module.__all__ if name != "everynet.zoo" else ("vision", "GAN", "Ensemble"):
        assert getattr(module, word) is not None
    assert "annotations" not in dir(module)


def test_public_functions_and_classes_are_listed():
    assert {"recipe", "run", "resume", "load", "sweep", "trained"} < set(dir(everynet))
    assert {"Training", "Data", "Result", "UserError", "zoo", "nn"} < set(dir(everynet))
    assert {"LeNet", "LIFNetwork", "SoftmaxRegression", "vision"} < set(dir(everynet.zoo))
    assert {"Lion", "sampled_softmax", "layer_table"} < set(dir(everynet.nn))
    assert callable(everynet.nn.sampled_softmax)  # the function, not the file of that name
    assert {"heatmap", "Panel"} < set(dir(everynet.plot))


def test_looking_at_names_imports_nothing_heavy():
    code = (
        "import sys, everynet; dir(everynet); dir(everynet.zoo); everynet.zoo.__all__\n"
        "assert 'numpy' not in sys.modules and 'torch' not in sys.modules\n"
        "everynet.zoo.vision; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_blocks_are_plain_modules():
    assert issubclass(everynet.zoo.ResNet, nn.Module)
