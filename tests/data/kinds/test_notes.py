"""Music: a folder of MIDI files, arrays in memory, excerpts, files written, and what is refused."""

import re

import numpy as np
import pytest
import torch

from everynet.data import check, load
from everynet.data.draws import Draw
from everynet.data.in_memory import Given, given, holding
from everynet.data.kinds import named
from everynet.data.kinds.notes import BAR, TOKENS, _transpose, pitch_name
from everynet.data.loading import Like, samples
from everynet.data.sounds.midi import REST, read_midi, write_midi
from everynet.data.split import PARTS
from everynet.system.errors import UserError

NOTES = named("notes")


def grid(number, length=20, voices=2):
    """A piece that differs from those of other numbers."""
    random = np.random.default_rng(number)
    piece = random.integers(50, 70, (length, voices)).astype(np.int8)
    return np.sort(piece, 1)[:, ::-1].copy()


def songs(folder, count=12, **files):
    """A folder of MIDI files; `files` are added, by names with __ for a slash."""
    folder.mkdir(exist_ok=True, parents=True)
    for number in range(count):
        (folder / f"{number}.mid").write_bytes(write_midi(grid(number, 20 + number)))
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content)
    return folder


def loaded(data, **options):
    return load(data, kind="notes", batch_size=2, **options)


# ------------------------------------------------------------------------------------------- good


def test_a_folder_is_split_by_the_names_of_its_files(tmp_path):
    found = samples(songs(tmp_path), kind="notes")
    assert sum(len(found.parts[part]) for part in PARTS) == 12
    assert found.voices == 2
    for part in PARTS:
        for piece, place in zip(found.parts[part], found.places[part], strict=True):
            number = int(re.search(r"(\d+)\.mid", place)[1])
            assert np.array_equal(piece, grid(number, 20 + number))


def test_own_parts_are_kept(tmp_path):
    for part, count in (("train", 4), ("valid", 2), ("test", 3)):
        songs(tmp_path / part, count)
    found = samples(tmp_path, kind="notes")
    assert [len(found.parts[part]) for part in PARTS] == [4, 2, 3]


def test_an_excerpt_is_a_stretch_of_its_piece_with_the_place_in_the_bar(tmp_path):
    data = loaded(songs(tmp_path), window=6)
    pieces = [
        torch.from_numpy(p.astype(int)) + 1 for p in samples(tmp_path, kind="notes").parts["train"]
    ]
    for step in range(3):
        x, lengths, number = data.train(step)
        assert x.shape == (2, 6, 3)
        assert x.dtype == torch.int64
        assert lengths.tolist() == [6, 6]
        for row, piece in zip(x, (pieces[n] for n in number), strict=True):
            starts = [t for t in range(len(piece) - 5) if torch.equal(piece[t : t + 6], row[:, :2])]
            assert any(((t + torch.arange(6)) % BAR).equal(row[:, 2]) for t in starts)
    assert data.spec["voices"] == 2
    assert data.spec["pitches"] == [50, 69]


def test_evaluation_has_whole_pieces_in_order(tmp_path):
    data = loaded(songs(tmp_path), window=6)
    for part in PARTS:
        pieces = samples(tmp_path, kind="notes").parts[part]
        at = 0
        for x, lengths, _ in data.batches(part):
            for row, length in zip(x, lengths.tolist(), strict=True):
                assert np.array_equal(row[:length, :2].numpy() - 1, pieces[at])
                assert not row[length:].any()
                at += 1
        assert at == len(pieces)
    _, _, number = next(data.sample("test", 2))
    assert len(number) == 2


def test_transposing_moves_all_notes_alike_and_no_rest():
    x = torch.zeros(50, 4, 3, dtype=torch.int64)
    x[:, :3, 0], x[:, 1, 1], x[:, :, 2] = 61, 49, torch.arange(4)
    draw = Draw(torch.Generator().manual_seed(0), 50)
    (moved, lengths), shifts = _transpose((x, torch.ones(50)), draw, 6), set()
    for before, after in zip(x, moved, strict=True):
        sounding = before[:, :2] > 0
        (shift,) = set((after - before)[:, :2][sounding].tolist())
        assert not after[:, :2][~sounding].any()
        assert torch.equal(after[:, 2], before[:, 2])
        shifts.add(shift)
    assert shifts == set(range(-6, 7))
    assert lengths.sum() == 50


def test_transposing_never_leaves_the_pitches_of_midi():
    x = torch.tensor([[[1, 0]], [[TOKENS - 1, 0]]]).repeat(200, 1, 1)
    moved, _ = _transpose((x, x), Draw(torch.Generator().manual_seed(0), 400), 6)
    assert moved[..., 0].min() == 1
    assert moved[..., 0].max() == TOKENS - 1
    assert len(moved[::2, 0, 0].unique()) == 7  # up alone


def test_a_piece_with_fewer_voices_rests_below(tmp_path):
    songs(tmp_path, 6, solo_mid=write_midi(grid(0, voices=1)))
    x = torch.cat([row.flatten(0, 1) for row, _, _ in loaded(tmp_path, window=4).batches("train")])
    assert x.shape[1] == 3
    spec = {"voices": 3}
    (tokens,) = NOTES.read([tmp_path / "solo.mid"], spec)[1]
    assert tokens[:, 0].min() > 0
    assert not tokens[:, 1:].any()


def test_arrays_in_memory_are_pieces():
    array = np.full((10, 8, 2), 60)
    array[:, 6:] = REST
    array[:, 0, 0] = np.arange(50, 60)
    with holding(given(array)):
        found = samples(given(array).name, kind="notes")
        data = loaded(given(array).name, window=4)
    assert {p.shape for part in PARTS for p in found.parts[part]} == {(6, 2)}
    assert data.train(0)[0].shape == (2, 4, 3)
    tokens = NOTES.convert(array[:1, :, 0], {"voices": 2})[0]
    assert tokens.tolist() == [[51, 0]] + [[61, 0]] * 5
    assert NOTES.from_memory(Given(array.astype(float))) is None


def test_data_to_evaluate_on_is_read_as_that_of_the_run(tmp_path):
    spec = loaded(songs(tmp_path / "a"), window=4).spec
    solo = songs(tmp_path / "b", 1)
    data = loaded(Like(str(solo), spec, "other"), window=4)
    assert data.test_only
    assert data.rows("test") == 1
    assert {k: data.spec[k] for k in ("voices", "pitches")} == {"voices": 2, "pitches": [50, 69]}
    one = loaded(Like(str(solo / "0.mid"), spec, "other"), window=4)
    assert one.rows("test") == 1


def test_pieces_are_written_as_midi_and_wav(tmp_path):
    tokens = torch.stack([torch.from_numpy(grid(n).astype(int)) for n in range(2)]) + 1
    made = NOTES.to_data_units(tokens, {})
    paths = NOTES.write(made, {}, tmp_path / "piece.mid")
    assert [p.name for p in paths] == ["piece-1.mid", "piece-1.wav", "piece-2.mid", "piece-2.wav"]
    assert np.array_equal(read_midi(paths[2].read_bytes(), "2").grid, grid(1))
    one = NOTES.write(made[:1], {}, tmp_path / "one.wav")
    assert [p.name for p in one] == ["one.mid", "one.wav"]
    assert one[1].read_bytes()[:4] == b"RIFF"


def test_outliers_and_names():
    spec = {"pitches": [50, 69]}
    low, fine = torch.tensor([[41, 0]]), torch.tensor([[51, 70]])
    why = NOTES.outliers([low, fine], spec)
    assert why == ["E2 is outside of what was learned, D3 to A4; transpose it", ""]
    assert [pitch_name(n) for n in (60, 61, 0, 127)] == ["C4", "C#4", "C-1", "G9"]


def test_check_tells_what_is_there(tmp_path):
    songs(tmp_path, 6, readme_txt=b"words", copy_mid=write_midi(grid(0, 20)), bad_mid=b"MThd")
    report = check(tmp_path)
    said = str(report)
    assert report.kind == "notes"
    assert not report.good
    assert "2 voices: 7" in said
    assert "pitches" in said
    assert "longest 25" in said
    assert "1 files that do not end in .mid" in said
    assert "bad.mid must be a MIDI file" in said
    assert NOTES.line(loaded(songs(tmp_path / "c"), window=4).spec).endswith("from D3 to A4")


def test_check_tells_of_notes_that_were_changed(tmp_path):
    chord = b"\0\x90\x3c\x50\0\x90\x40\x50\x50\x80\x3c\0\0\x80\x40\0\0\x99\x20\x50\0\xff\x2f\0"
    content = b"MThd\0\0\0\6\0\0\0\1\x01\xe0MTrk" + len(chord).to_bytes(4) + chord
    said = str(check(songs(tmp_path, 4, chord_mid=content)))
    assert "2 of" in said
    assert "moved to it" in said
    assert "1 notes of percussion" in said
    assert "notes of 1 of 5 files were dealt out" in said


def test_what_looks_like_music(tmp_path):
    assert NOTES.matches(songs(tmp_path / "a"))
    assert NOTES.matches(tmp_path / "a" / "0.mid")
    (tmp_path / "b").mkdir()
    assert not NOTES.matches(tmp_path / "b")
    assert not NOTES.matches(tmp_path / "none.mid")


# -------------------------------------------------------------------------------------------- bad


def test_a_bad_folder_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for path, words in (
        (tmp_path / "empty", "must hold MIDI files"),
        (songs(tmp_path / "two", 2), "at least 3 pieces, .* but holds 2"),
        (songs(tmp_path / "a", 4) / "0.mid", "at least 3 pieces, .* but holds 1"),
        (songs(tmp_path / "bad", 4, x_mid=b"no"), "x.mid must be a MIDI file"),
        (songs(tmp_path / "none", 4, x_mid=b""), "x.mid is empty"),
    ):
        with pytest.raises(UserError, match=words):
            loaded(path, window=4)
    songs(tmp_path / "own" / "train", 3)
    songs(tmp_path / "own" / "test", 0, readme_txt=b"x")
    with pytest.raises(UserError, match="test part holds no piece"):
        loaded(tmp_path / "own", window=4)
    (tmp_path / "words.txt").write_text("words")
    with pytest.raises(UserError, match="must be music: a folder of MIDI files"):
        loaded(tmp_path / "words.txt", window=4)


def test_more_voices_than_were_learned_are_refused(tmp_path):
    path = tmp_path / "a.mid"
    path.write_bytes(write_midi(grid(0, voices=3)))
    with pytest.raises(UserError, match=r"a.mid \(3 voices\) must have at most 2"):
        NOTES.read([path], {"voices": 2})


def test_bad_arrays_are_refused():
    rest = np.full((4, 5, 2), REST)
    for array, words in (
        (np.full((4, 5), 128), "from 0 to 127"),
        (np.full((4, 5), -2), "from 0 to 127"),
        (np.zeros((0, 5), int), "from 0 to 127"),
        (np.zeros((2, 5, 9), int), "at most 8 voices"),
        (rest, "row 0 must hold a note"),
        (np.zeros((2, 5)), "must be an array of pitches"),
        (["a.mid"], "must be an array of pitches"),
    ):
        with pytest.raises(UserError, match=words):
            NOTES.convert(array, {"voices": 2})
    two = np.full((2, 5, 1), 60)
    with holding(given(two)), pytest.raises(UserError, match="at least 3 pieces"):
        loaded(given(two).name, window=4)


def test_music_is_not_written_as_a_picture(tmp_path):
    with pytest.raises(UserError, match="because music is made"):
        NOTES.write(torch.zeros(1, 4, 1, dtype=torch.int64), {}, tmp_path / "a.png")
