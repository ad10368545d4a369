"""Words of our own that a search would not find stay out of what a person reads.

HOUSE words: metric, dataset, predict, evaluate, checkpoint, early stopping, cache, random state,
cross-entropy, internal error. What is read: every text that is raised, printed, drawn or shown, the
captions of pictures, the meaning of settings and metrics, README and the pages of docs.
"""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "everynet"
PRIVATE = {
    "figure for metric": r"(?<!matplotlib )\bfigures?\b",
    "judged": r"\bjudg(?:e|ed|es|ing)\b",
    "told": r"\btold\b",
    "asked": r"\basked\b",
    "tired": r"\btired\b",
    "keeping": r"\bkeeping\b",
    "nats of surprise": r"nats of surprise",
    "no seed matters": r"no seed matters",
    "a fault of ours": r"fault of ours",
}
FOUND = re.compile("|".join(f"(?:{pattern})" for pattern in PRIVATE.values()))
SPOKEN = {"print", "say", "say_once", "tell", "note", "warn", "add_argument", "text", "set_title"}
DRAWN = {"set_xlabel", "set_ylabel", "set_zlabel", "set_label", "annotate", "suptitle", "Panel"}
WORDS = re.compile(r"[A-Za-z]\s+[A-Za-z]")


def texts(node):
    """The constant texts below a node that hold more than one word, with their lines."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.lineno, part.value


def documented(body):
    """The texts below fields of a class, and the docstrings of its pictures."""
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            yield from texts(after)
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.target) == "meanings":
            yield from texts(field)
    for method in body:
        if isinstance(method, ast.FunctionDef) and method.name.startswith("picture_"):
            yield from texts(method.body[0])


def read_by_a_person(tree):
    """Each text of a file that a person is shown, with its line."""
    if tree.body and isinstance(tree.body[0], ast.Expr):
        yield from texts(tree.body[0])  # what `show` prints of a network
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            yield from texts(node)
        elif isinstance(node, ast.ClassDef):
            yield from documented(node.body)
        elif _says(node):
            yield from texts(node)


def _says(node):
    """Whether texts below a node are printed or drawn."""
    if isinstance(node, ast.keyword):
        return node.arg in ("title", "xlabel", "ylabel", "help")
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", getattr(node.func, "id", "")) in SPOKEN | DRAWN
    return isinstance(node, ast.Yield)


@pytest.mark.parametrize("room", sorted({p.parent for p in SOURCE.rglob("*.py")}), ids=str)
def test_what_a_person_is_shown_has_the_words_of_the_field(room):
    hits = []
    for path in sorted(room.glob("*.py")):
        for line, text in read_by_a_person(ast.parse(path.read_text(encoding="utf-8"))):
            hits += [f"{path.name}:{line}: {m[0]}" for m in FOUND.finditer(text)]
    assert not hits


@pytest.mark.parametrize(
    "page",
    ["README.md", "CONTRIBUTING.md", "docs/index.md", "docs/getting-started.md", "docs/how-to.md"],
)
def test_pages_have_them_too(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not [m[0] for m in FOUND.finditer(text)]


def test_the_check_finds_each_of_them():
    for name, example in {
        "figure for metric": "raise UserError('goal must name a figure')",
        "judged": "print('it was judged well')",
        "told": "class A:\n    x: int = 0\n    '''What is told.'''\n",
        "nats of surprise": "class A:\n    meanings: D = {'a': 'nats of surprise'}\n    y = 1\n",
        "keeping": "class A:\n    def picture_x(self):\n        '''Bars of keeping.'''\n",
    }.items():
        found = [t for _, t in read_by_a_person(ast.parse(example)) if FOUND.search(t)]
        assert found, name
    assert not FOUND.search("Figure 2 of the paper, a matplotlib figure")
