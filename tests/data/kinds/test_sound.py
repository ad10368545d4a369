"""Clips with classes or transcripts: folders, tables of files, in memory, and what is wrong."""

import numpy as np
import pytest
import torch

from everynet.data import check, load
from everynet.data.in_memory import given, holding
from everynet.data.kinds import matching, named
from everynet.data.loading import Like, samples
from everynet.data.sounds import wav
from everynet.data.split import PARTS
from everynet.system.errors import UserError

KIND = named("sound")
RATE = 8000


def clip(seed, frames=800):
    return np.random.default_rng(seed).integers(-9000, 9000, frames).astype(np.int16)


def tree(folder, count=20, rate=RATE, channels=1):
    """Two classes of clips of unequal length."""
    for n in range(count):
        path = folder / "clips" / ("yes", "no")[n % 2] / f"{n}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        sound = clip(n, 400 + n)
        path.write_bytes(
            wav.encode(np.stack([sound] * channels, 1) if channels > 1 else sound, rate)
        )
    return folder / "clips"


def talk(folder, rows=None, head="file,transcript"):
    """A folder with a csv of transcripts."""
    (folder / "talk").mkdir()
    words = ("one", "two", "one two", "two one two")
    rows = rows or [(f"{n}.wav", words[n % 4]) for n in range(20)]
    for n, (name, _) in enumerate(rows):
        if name:
            (folder / "talk" / name).write_bytes(wav.encode(clip(n, 400 + n), RATE))
    lines = [head, *(",".join(row) for row in rows)]
    (folder / "talk" / "talk.csv").write_text("\n".join(lines) + "\n")
    return folder / "talk"


def loaded(path, **options):
    return load(path, kind="sound", batch_size=2, **options)


# ------------------------------------------------------------------------------------------- good


def test_a_folder_of_classes_becomes_clips_of_16_bits(tmp_path):
    data = loaded(tree(tmp_path))
    assert data.spec["classes"] == ["no", "yes"]
    assert (data.spec["rate"], data.spec["speakers"]) == (RATE, [])
    found = {}
    for part in PARTS:
        stream, starts, labels = data.splits[part]
        assert stream.dtype == torch.int16
        for k, label in enumerate(labels[:, 0].tolist()):
            found[stream[starts[k] : starts[k + 1]].numpy().tobytes()] = label
    assert found == {clip(n, 400 + n).tobytes(): 1 - n % 2 for n in range(20)}


def test_a_batch_is_numbers_from_minus_one_to_one_with_lengths_and_labels(tmp_path):
    x, lengths, labels = loaded(tree(tmp_path)).train(0)
    assert x.dtype == torch.float32
    assert labels.shape == (2, 2)
    assert x.shape[1] == int(lengths.max())
    for row, length in zip(x, lengths.tolist(), strict=True):
        n = length - 400
        expected = torch.from_numpy(clip(n, length)) / 2**15
        torch.testing.assert_close(row[:length], expected)
        assert not row[length:].any()


def test_a_window_is_a_stretch_of_each_clip(tmp_path):
    data = loaded(tree(tmp_path), window=300)
    x, lengths, _ = data.train(0)
    assert x.shape == (2, 300)
    assert lengths.tolist() == [300, 300]


def test_clips_are_split_by_name_or_as_the_user_did(tmp_path):
    found = samples(tree(tmp_path), kind="sound")
    assert sum(len(found.parts[part]) for part in PARTS) == 20
    own = tmp_path / "own"
    for part in ("train", "valid", "test"):
        for n, name in enumerate(("a", "b")):
            path = own / part / name / "1.wav"
            path.parent.mkdir(parents=True)
            path.write_bytes(wav.encode(clip(n + len(part)), RATE))
    assert samples(own, kind="sound").split == "train, valid and test are folders of their own"


def test_a_csv_and_the_folder_that_holds_it_are_the_same(tmp_path):
    folder = talk(tmp_path)
    one, other = (samples(path, kind="sound") for path in (folder, folder / "talk.csv"))
    assert one.digest == other.digest
    data = loaded(folder)
    assert (data.spec["task"], data.spec["symbols"]) == ("transcription", ["one", "two"])
    x, lengths, y, y_lengths = data.train(0)
    assert x.shape[1] == int(lengths.max())
    for length, row, count in zip(lengths.tolist(), y, y_lengths.tolist(), strict=True):
        words = [("one",), ("two",), ("one", "two"), ("two", "one", "two")][(length - 400) % 4]
        assert [data.spec["symbols"][s] for s in row[:count].tolist()] == [*words]
    letters = loaded(folder, tokens="characters")
    assert letters.spec["symbols"] == [" ", "e", "n", "o", "t", "w"]


def test_a_column_of_speakers_is_kept(tmp_path):
    rows = [(f"{n}.wav", "one two", ("ann", "bob")[n % 2]) for n in range(200)]
    (tmp_path / "talk").mkdir()
    for n, row in enumerate(rows):
        (tmp_path / "talk" / row[0]).write_bytes(wav.encode(clip(n), RATE))
    listed = "\n".join(",".join(row) for row in [("File", "Transcript", "speaker"), *rows])
    (tmp_path / "talk" / "a.csv").write_text(listed)
    data = loaded(tmp_path / "talk", held_out="ann")
    assert data.spec["speakers"] == ["ann", "bob"]
    assert data.rows("test") == 100


def test_another_rate_is_resampled_and_several_channels_are_mixed_and_said(tmp_path):
    data = loaded(tree(tmp_path, rate=16_000, channels=2), rate=4000)
    assert data.spec["rate"] == 4000
    assert int(data.splits["train"][1].diff().max()) <= 105
    assert "20 of 20 clips" in data.notes[0]
    assert "have several channels, whose mean is taken" in data.notes[0]


def test_silence_is_trimmed_only_when_asked_and_then_of_predictions_too(tmp_path):
    path = tree(tmp_path)
    for file in path.rglob("*.wav"):
        sound = np.concatenate([np.zeros(400, np.int16), clip(1, 800)])
        file.write_bytes(wav.encode(sound, RATE))
    assert loaded(path).splits["train"][1][1] == 1200
    data = loaded(path, trim=40.0)
    assert data.splits["train"][1][1] == 800
    assert len(KIND.read([path / "yes" / "0.wav"], data.spec)[1][0]) == 800


def test_predictions_are_read_and_resampled_as_training_was(tmp_path):
    path = tree(tmp_path)
    data = loaded(path)
    names, (x,) = KIND.read([path / "yes" / "0.wav"], data.spec)
    torch.testing.assert_close(x, torch.from_numpy(clip(0, 400)) / 2**15)
    other = tmp_path / "other.wav"
    other.write_bytes(wav.encode(clip(0, 400), 2 * RATE))
    assert len(KIND.read([other], data.spec)[1][0]) == 200
    assert names[0].endswith("0.wav")
    for given_ in ([clip(0, 400)], (clip(0, 400) / 2**15)[None]):
        found = KIND.convert(given(given_).x, data.spec)
        torch.testing.assert_close(found[0], x)


def test_clips_in_memory_are_those_of_files(tmp_path):
    clips = [clip(n, 400 + n) for n in range(20)]
    held = given((clips, ["yes", "no"] * 10))
    with holding(held):
        data = loaded(held.name, rate=RATE)
        with pytest.raises(UserError, match=r"rate \(0\) must be given with clips in memory"):
            loaded(held.name)
    assert data.spec["classes"] == ["no", "yes"]
    assert data.rows("train") + data.rows("valid") + data.rows("test") == 20
    equal = given(([one[:400] / 2.0**15 for one in clips], np.arange(20) % 2))
    with holding(equal):
        assert loaded(equal.name, rate=RATE).spec["classes"] == ["0", "1"]
    assert held.digest != given((clips[::-1], ["yes", "no"] * 10)).digest
    assert str(held) == "20 arrays of unequal length with 20 texts"


def test_what_is_evaluated_is_treated_like_what_was_learned(tmp_path):
    data = loaded(tree(tmp_path), trim=30.0)
    fresh = tmp_path / "fresh"
    (fresh / "yes").mkdir(parents=True)
    (fresh / "yes" / "1.wav").write_bytes(wav.encode(clip(3, 1000), 2 * RATE))
    found = load(Like(str(fresh), data.spec, ""), kind="sound", batch_size=1)
    _, lengths, labels = next(iter(found.test))
    assert (lengths.tolist(), labels.tolist()) == ([500], [[1, 0]])
    (fresh / "yes").rename(fresh / "maybe")
    with pytest.raises(UserError, match="class maybe is none that the network learned"):
        load(Like(str(fresh), data.spec, ""), kind="sound", batch_size=1)


def test_samples_are_written_as_wav(tmp_path):
    spec = {"rate": RATE}
    (one,) = KIND.write([torch.tensor([0.0, 0.5, -2.0])], spec, tmp_path / "a.wav")
    assert wav.read(one).values.tolist() == [0, 16384, -32768]
    made = KIND.write(torch.zeros(3, 10), spec, tmp_path / "b")
    assert [path.name for path in made] == ["b-1.wav", "b-2.wav", "b-3.wav"]
    with pytest.raises(UserError, match=r"must end in \.wav, because sound was made"):
        KIND.write([torch.zeros(3)], spec, tmp_path / "a.png")


def test_the_kind_of_a_path_is_told(tmp_path):
    assert matching(tree(tmp_path)) is KIND
    assert matching(talk(tmp_path)) is KIND
    assert matching(tmp_path / "talk" / "talk.csv") is KIND
    assert KIND.line(loaded(tmp_path / "clips").spec).endswith("sound of 8,000 Hz, 2 classes")
    assert KIND.line(loaded(tmp_path / "talk").spec).endswith("sound of 8,000 Hz, transcripts")


def test_check_tells_rates_lengths_clipping_silence_and_classes(tmp_path):
    path = tree(tmp_path)
    loud = np.full(800, 32767, np.int16)
    (path / "yes" / "0.wav").write_bytes(wav.encode(loud, RATE))
    (path / "no" / "1.wav").write_bytes(wav.encode(np.ones(800, np.int16), 2 * RATE))
    (path / "no" / "notes.txt").write_text("hello")
    report = check(path)
    said = str(report)
    assert report.good
    for words in (
        "8,000 Hz: 19", "16,000 Hz: 1", "median 0.05 s", "longest 0.10 s",
        "1 of 20 clips are at full scale", "1 of 20 clips stay below -60 dB", "class      no:",
        "1 of the files",
    ):  # fmt: skip
        assert words in said
    (path / "yes" / "2.wav").write_bytes(b"RIFF")
    report = check(path)
    assert not report.good
    assert "2.wav is no wav file" in report.unreadable[0]
    assert "speakers" not in said
    assert "together" in str(check(talk(tmp_path)))


def test_known_sets_are_what_they_say():
    for name, classes, speakers in (("tones", 4, 0), ("tone-words", 8, 4)):
        data = load(f"{name}:200", kind="sound", batch_size=2)
        assert (data.rows("train"), data.rows("valid"), data.rows("test")) == (180, 20, 40)
        assert (len(data.spec["classes"]), len(data.spec["speakers"])) == (classes, speakers)
        stream = data.splits["test"][0]
        assert int(stream.int().abs().max()) > 2000
        assert torch.equal(
            stream, load(f"{name}:200", kind="sound", batch_size=2).splits["test"][0]
        )


# -------------------------------------------------------------------------------------------- bad


def test_clips_of_different_rates_need_a_rate(tmp_path):
    path = tree(tmp_path)
    (path / "yes" / "0.wav").write_bytes(wav.encode(clip(0), 44_100))
    with pytest.raises(UserError, match=r"must have the rate of .*; or do sample_rate=8000"):
        loaded(path)
    assert loaded(path, rate=8000).spec["rate"] == 8000


def test_one_bad_file_is_refused_by_its_name(tmp_path):
    path = tree(tmp_path)
    (path / "yes" / "0.wav").write_bytes(wav.encode(clip(0), 44_100)[:-10])
    with pytest.raises(UserError, match=r"0\.wav is cut short"):
        loaded(path)


def test_bad_folders(tmp_path):
    one = tmp_path / "one"
    (one / "yes").mkdir(parents=True)
    for n in range(20):
        (one / "yes" / f"{n}.wav").write_bytes(wav.encode(clip(n), RATE))
    with pytest.raises(UserError, match=r"one class \(yes\) is not enough to learn from"):
        loaded(one)
    (one / "no").mkdir()
    (one / "no" / "a.txt").write_text("no")
    with pytest.raises(UserError, match="one class"):
        loaded(one)
    with pytest.raises(UserError, match=r"must be sound: a folder with one subfolder of wav"):
        loaded(one / "yes" / "1.wav")
    few = tree(tmp_path, count=2)
    with pytest.raises(UserError, match=r"part holds no clip|has no training clip"):
        loaded(few)


def test_bad_transcripts(tmp_path):
    folder = talk(tmp_path)
    listed = folder / "talk.csv"
    text = listed.read_text()
    for wrong, words in (
        (text + "none.wav,one\n", r"line 22 names .*none\.wav, which is not there"),
        (text + "1.wav,\n", "line 22 has no transcript; fill it in"),
        (text + ",one\n", "line 22 has no file; fill it in"),
        ("file,transcript\n", "names no file; add lines of file,transcript"),
    ):
        listed.write_text(wrong)
        with pytest.raises(UserError, match=words):
            loaded(folder)
    listed.write_text("file,words\n1.wav,one\n")
    with pytest.raises(UserError, match="must have the columns file and transcript in line 1"):
        KIND.find(listed)
    listed.write_text(text)
    (folder / "more.csv").write_text(text)
    with pytest.raises(UserError, match="must hold one csv of transcripts, not more"):
        KIND.find(folder)


def test_a_symbol_that_no_training_transcript_has_is_refused(tmp_path):
    folder = talk(tmp_path)
    found = samples(folder, kind="sound")
    place = found.parts["test"][0].place
    listed = folder / "talk.csv"
    name = place.rsplit("/", 1)[1]
    lines = [f"{name},zwölf" if f"{name}," in line else line
             for line in listed.read_text().split("\n")]  # fmt: skip
    listed.write_text("\n".join(lines))
    with pytest.raises(UserError, match="its transcript has 'zwölf', which no training transcript"):
        loaded(folder)
    with pytest.raises(UserError, match="its transcript has 'z', which no training"):
        loaded(folder, tokens="characters")


def test_bad_options(tmp_path):
    path = tree(tmp_path)
    for option, words in (
        ({"rate": 3}, r"rate \(3\) must be from 100 to 768,000 Hz"),
        ({"trim": -1.0}, r"trim \(-1.0\) must be from 0"),
        ({"tokens": "bpe"}, r"tokens \(bpe\) must be words or characters"),
        ({"held_out": "ann"}, r"held_out \(ann\) must be a speaker of .*, which names none"),
    ):
        with pytest.raises(UserError, match=words):
            loaded(path, **option)
    with pytest.raises(UserError, match=r"held_out \(flut\) must be a speaker of tone-words; did"):
        loaded("tone-words:100", held_out="flut")


def test_bad_clips_in_memory():
    spec = {"rate": RATE, "trim": 0.0}
    for clips, words in (
        (
            [np.array([0.0, 2.0]), np.zeros(3)],
            "clip 0 must be of numbers from -1 to 1, or of int16",
        ),
        ([np.array([0.0, np.nan]), np.zeros(3)], "clip 0 must be of numbers from -1 to 1"),
        ([np.zeros(2), np.zeros(0)], "clip 1 is empty; leave it out"),
        (np.zeros((2, 3), np.int64), "inputs must be clips: arrays of int16"),
    ):
        with pytest.raises(UserError, match=words):
            KIND.convert(given(clips).x, spec)
    table = given(([np.zeros(2), np.zeros(3)], ["a", "b"]))
    with holding(table), pytest.raises(UserError, match=r"2 arrays of unequal length.*table"):
        load(table.name, kind="table", batch_size=1)


# -------------------------------------------------------------------------------------- real sound


@pytest.mark.real_data
@pytest.mark.covers("D6")
def test_spoken_digits_are_whole_and_their_test_is_the_published_one(real_sounds):
    found = real_sounds
    assert {part: len(found.parts[part]) for part in PARTS} == {
        "train": 2450, "valid": 250, "test": 300,
    }  # fmt: skip
    assert found.classes == tuple("0123456789")
    assert found.speakers == ["george", "jackson", "lucas", "nicolas", "theo", "yweweler"]
    for part, published in (("train", False), ("valid", False), ("test", True)):
        numbers = {int(one.place.split("_")[2].removesuffix(".wav")) for one in found.parts[part]}
        assert (numbers <= set(range(5))) == published
    everything = [one for part in PARTS for one in found.parts[part]]
    assert {one.rate for one in everything} == {8000}
    per = {(one.label, one.speaker) for one in found.parts["test"]}
    assert len(per) == 60


@pytest.fixture
def real_sounds():
    import os

    if not os.environ.get("EVERYNET_DATA"):
        pytest.skip("needs real data: EVERYNET_DATA is not set")
    return samples("spoken-digits", kind="sound")


@pytest.mark.covers("D6")
def test_spoken_digits_that_are_absent_or_damaged_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    with pytest.raises(UserError, match="spoken-digits") as caught:
        loaded("spoken-digits")
    assert "\n" not in str(caught.value)
    (tmp_path / "fsdd").mkdir()
    (tmp_path / "fsdd" / "recordings.zip").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"recordings\.zip is damaged: it is cut short: 2 of the"):
        loaded("spoken-digits")
