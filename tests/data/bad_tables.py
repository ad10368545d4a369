"""Tables in csv files that must be refused."""

from .bad_images import noise, save
from .mutants import Mutant


def _lines(random, count=40):
    header = ["height", "width", "depth", "label"]
    body = [
        [*(f"{value:.3f}" for value in random.normal(size=3)), ("ash", "oak")[row % 2]]
        for row in range(count)
    ]
    return [header, *body]


def _text(lines):
    return "".join(",".join(cells) + "\n" for cells in lines)


def csvs(folder, random):
    good = _lines(random)
    text = _text(good)

    def edited(line, column, cell):
        lines = [[*cells] for cells in good]
        lines[line - 1][column] = cell
        return _text(lines)

    header, body = text.split("\n", maxsplit=1)
    cases = (
        ("empty", "", "empty"),
        ("blank lines", "\n\n\n", "empty"),
        ("header alone", header + "\n", "rows"),
        ("no header", body.replace("ash", "1").replace("oak", "0"), "line 1", "header"),
        ("nameless column", "height,,depth,label\n" + body, "line 1", "column 2"),
        ("same column twice", "height,width,width,label\n" + body, "line 1", "width", "twice"),
        ("short line", edited(7, 3, "oak").replace("\n", "\n1,2\n", 1), "line 2", "2 cells"),
        ("long line", text + "1,2,3,oak,5\n", "line 42", "5 cells"),
        ("blank line", text.replace("\n", "\n\n", 1), "line 2", "blank"),
        ("spaces", text.replace(",", " "), "no column label"),
        ("open quote", text + '"1,2,3,oak\n', "line 42"),
        ("bad quote", text + '"1"x,2,3,oak\n', "line 42", "expected after"),
        ("giant cell", text + "1" * 200_000 + ",2,3,oak\n", "line 42"),
        ("no target in any line", text.replace("oak", "").replace("ash", "?"), "label", "empty"),
        ("one class", text.replace("oak", "ash"), "ash", "class"),
        (
            "word among numbers",
            text.replace("ash", "1").replace("oak", "0") + "1,2,3,oak\n",
            "line 42",
            "label",
            "number",
        ),
        ("one row", header + "\n1,2,3,oak\n", "bad.csv"),
    )
    blobs = (
        ("cut utf-16", text.encode("utf-16")[:-1], "UTF-16"),
        ("png renamed csv", save(noise(random, 8, 8), "PNG"), "NUL"),
        ("noise", b"\xff" + random.bytes(500), "bad.csv"),
        ("zero bytes", text.encode() + b"\0" * 300 + b",2,3,oak\n", "line 42"),
    )
    given = [(name, text.encode(), *words) for name, text, *words in cases]
    for number, (name, content, *words) in enumerate([*given, *blobs]):
        path = folder / f"{number:03}" / "bad.csv"
        path.parent.mkdir()
        path.write_bytes(content)
        yield Mutant(f"csv {name}", str(path), {"target": "label"}, ("bad.csv", *words), "table")
    path = folder / "good.csv"
    path.write_text(text)
    for target, *words in (
        ("", "target", "height"),
        ("lable", "lable", "label"),
        ("3", "good.csv", "3"),
    ):
        yield Mutant(f"csv target={target}", str(path), {"target": target}, tuple(words), "table")
    wanted = {"target": "label", "batch_size": 41}
    yield Mutant("csv batch too large", str(path), wanted, ("batch_size", "41"), "table")
    path = folder / "alone.csv"
    path.write_text("label\n" + "ash\noak\n" * 20)
    yield Mutant(
        "csv target alone", str(path), {"target": "label"}, ("alone.csv", "besides"), "table"
    )


def cells(folder, random):
    """One bad cell somewhere in a table: the line and the column must be named."""
    bad = (
        "inf",
        "-Infinity",
        "1e999",
        "abc",
        "1,5",
        "--3",
        "0x10",
        "1 2",
        "½",
        "-",
        "2024-05-31",
    )
    for number in range(24):
        lines = _lines(random)
        line, column = int(random.integers(2, 42)), int(random.integers(3))
        cell = bad[number % len(bad)]
        lines[line - 1][column] = f'"{cell}"' if "," in cell else cell
        path = folder / f"cell{number}.csv"
        path.write_text(_text(lines), encoding="utf-8")
        words = (path.name, f"line {line}", lines[0][column])
        yield Mutant(f"cell {cell!r}", str(path), {"target": "label"}, words, "table")


MAKERS = (csvs, cells)
