"""Sounds told apart: the equations by numpy, what decided, the stretch that is heard, messages."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d, max_pool2d

from everynet.data.draws import Draw
from everynet.data.kinds import named
from everynet.data.sounds import wav
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.training.loop import begin, train
from everynet.zoo.audio.sound_classifier import SoundClassification, SoundCNN


@cache
def tones():
    return SoundClassification(data="tones:100", seconds=0.2).dataset()


def network():
    torch.manual_seed(0)
    model = SoundCNN(3, rate=8000, mels=16, width=2, dropout=0.5).double()
    for module in model.modules():
        if hasattr(module, "running_mean"):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
            torch.nn.init.uniform_(module.weight, 0.5, 2)
            torch.nn.init.uniform_(module.bias, -1, 1)
    return model.eval()


@pytest.mark.covers("R16")
def test_the_network_is_its_equations():
    model, x = network(), torch.rand(2, 2000, dtype=torch.float64) - 0.5
    y, norm = model.log_mel(x), model.standardize
    h = (y - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    h = h[:, None]
    for block in model.blocks:
        convolved = conv2d(h, block[0].weight, padding=1)
        mean, var, gain, bias = (
            value[:, None, None]
            for value in (block[1].running_mean, block[1].running_var, block[1].weight,
                          block[1].bias)
        )  # fmt: skip
        normed = (convolved - mean) / (var + block[1].eps).sqrt() * gain + bias
        h = max_pool2d(normed.clamp(min=0), 2)
    expected = h.mean((2, 3)) @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(model(x), expected)


def test_the_mean_of_what_decided_is_the_logit():
    model, x = network(), torch.rand(2, 2000, dtype=torch.float64) - 0.5
    for label in range(3):
        decided = model.decided(x, label).mean((1, 2)) + model.output.bias[label]
        torch.testing.assert_close(decided, model(x)[:, label])


def test_augmented_clips_are_shifted_scaled_and_masked_and_nothing_else():
    x = torch.rand(4, 800) + 0.1
    batch = (x, torch.full((4,), 800), torch.zeros(4, 2))

    def augmented(**settings):
        recipe = SoundClassification(seconds=0.1, **settings)
        return recipe.augment(batch, Draw(generator(1), 4))[0]

    assert torch.equal(augmented(), x)
    shifted = augmented(shift=0.05)
    for row, before in zip(shifted, x, strict=True):
        begin = int((row > 0).int().argmax())
        assert begin <= 400
        assert torch.equal(row[begin:], before[: 800 - begin])
    louder = augmented(loudness=6.0) / x
    assert bool((louder.std(1) < 1e-6).all())
    assert 10 ** (-6 / 20) < float(louder.min()) < float(louder.max()) < 10 ** (6 / 20)
    assert torch.equal((augmented(mask=0.25) == 0).sum(1), torch.full((4,), 200))


def test_a_prediction_hears_what_evaluation_hears():
    recipe, data = SoundClassification(data="tones:100", seconds=0.2), tones()
    whole = replace(recipe, seconds=0.6).dataset()
    model = recipe.model(data).eval()
    x, lengths, _ = next(iter(whole.valid))
    clips = [row[:length] for row, length in zip(x, lengths.tolist(), strict=True)]
    expected, _, _ = next(iter(data.valid))
    for clip, row in zip(clips, expected, strict=True):
        torch.testing.assert_close(recipe.middle(clip, 8000)[0], row)
    answers = recipe.predict(model, clips, data.spec)
    p = model(expected).softmax(1)
    for answer, row, clip in zip(answers, p, clips, strict=True):
        assert answer["class"] == data.spec["classes"][int(row.argmax())]
        begin, end = answer["heard"]
        assert end - begin == pytest.approx(min(0.2, len(clip) / 8000), abs=2e-3)


def test_a_folder_is_learned_predicted_and_drawn(tmp_path):
    time = np.arange(2400) / 8000
    for n in range(40):
        path = tmp_path / "clips" / ("low", "high")[n % 2] / f"{n}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        tone = np.sin(2 * np.pi * (300, 1500)[n % 2] * (1 + n / 200) * time)
        path.write_bytes(wav.encode((tone * 9000).astype(np.int16), 8000))
    recipe = replace(find("sound-cnn").tiny(), data=str(tmp_path / "clips"), steps=30, goal="")
    data = recipe.dataset()
    state = begin(recipe, data)
    for _ in train(recipe, state, data):
        pass
    model = state.model.eval()
    paths = [tmp_path / "clips" / "low" / "0.wav", tmp_path / "clips" / "high" / "1.wav"]
    _, inputs = named("sound").read(paths, data.spec)
    with torch.no_grad():
        found = recipe.predict(model, inputs, data.spec, draw=True)
    assert [one["class"] for one in found] == ["low", "high"]
    assert found[0]["picture"].axes


def test_messages():
    for settings, words in (
        ({"seconds": 0.0}, r"seconds \(0.0\) must be a positive number"),
        ({"mask": 1.0}, r"mask \(1.0\) must be at least 0 and below 1"),
        ({"mels": 0}, r"mels \(0\) must be at least 1"),
        ({"shift": -1.0}, r"shift \(-1.0\) must be a number from 0 up"),
    ):
        with pytest.raises(UserError, match=words):
            SoundClassification(**settings)
    with pytest.raises(UserError, match=r"seconds \(0.1\) must be at least 0.128, because the fr"):
        SoundClassification(seconds=0.1).dataset()


def test_transcripts_are_no_classes(tmp_path):
    sound = np.random.default_rng(0).integers(-99, 99, (20, 2000)).astype(np.int16)
    for n in range(20):
        (tmp_path / f"{n}.wav").write_bytes(wav.encode(sound[n], 8000))
    listed = "\n".join(f"{n}.wav,one two" for n in range(20))
    (tmp_path / "a.csv").write_text(f"file,transcript\n{listed}\n")
    with pytest.raises(UserError, match="must be sounds with a class each"):
        SoundClassification(data=str(tmp_path), batch_size=4).dataset()
