"""Which code draws a picture, as a digest: another digest means that it has to be drawn again.

It is made of the text of the method `picture_...` and of every function, class and constant of
everynet.plot, of the zoo and of modules called `picture` that it reaches by name; comments,
annotations and docstrings do not count, but the caption does. An attribute (`x.gates`) reaches
every method of that name in the same file and in those of the recipe's bases, because the text
alone does not say what x is. Other rooms decide what a run holds, not how it is drawn.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from everynet.recipes.catalog import PACKAGE, Entry

FOLLOWED = re.compile(r"everynet\.(plot|zoo)\b|everynet\..*\.picture$")
SHARED = (("everynet.plot.style", "drawing"), ("everynet.plot.style", "render"))
"""What every picture goes through."""
LEFT_OUT = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind"}
DIGITS = 12


class Place(NamedTuple):
    """What has a name in a module, or a method (`Class.name`)."""

    module: str
    name: str


class Module:
    """What the text of a module defines and imports."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)

    @cached_property
    def defined(self) -> dict[str, list[ast.stmt]]:
        """The statements that give each name of the module its value, and each method its own."""
        found: dict[str, list[ast.stmt]] = {}
        for node in self.tree.body:
            for name in _names(node):
                found.setdefault(name, []).append(node)
            for part in node.body if isinstance(node, ast.ClassDef) else ():
                for name in _names(part):
                    found.setdefault(f"{node.name}.{name}", []).append(part)
        return found

    @cached_property
    def imported(self) -> dict[str, Place]:
        """Where the names come from that are imported, anywhere in the module."""
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.ImportFrom))
        return {
            alias.asname or alias.name: Place(node.module or "", alias.name)
            for node in nodes
            for alias in node.names
        }


def _names(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [name.id for name in targets if isinstance(name, ast.Name)]


def file_of(module: str) -> Path | None:
    """The file of a module of the package, if it is one."""
    path = PACKAGE.parent / module.replace(".", "/")
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def read(module: str) -> str | None:
    """The text of a module of the package, if it is one."""
    file = file_of(module) if module.startswith("everynet") else None
    return file and file.read_text(encoding="utf-8")


@cache
def module_of(name: str) -> Module | None:
    """A module of the package, parsed."""
    text = read(name)
    return None if text is None else Module(text)


def locate(module: str, name: str) -> Place | None:
    """Where a name of a module is defined, through its imports; a module has the name ``."""
    for _ in range(8):
        known = module_of(module)
        if known is None:
            return None
        if name in known.defined:
            return Place(module, name)
        if name not in known.imported:
            return None
        module, name = known.imported[name]
        package = module_of(module)
        if not (package and {name} & {*package.defined, *package.imported}):
            is_module = module_of(f"{module}.{name}") is not None
            return Place(f"{module}.{name}", "") if is_module else None
    return None


def classes(place: Place) -> Iterator[Place]:
    """A class and its bases, as far as they are everynet's."""
    yield place
    for node in _nodes(place):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            found = _resolve(place.module, base.value if isinstance(base, ast.Subscript) else base)
            if found is not None and found != place:
                yield from classes(found)


def _nodes(place: Place) -> list[ast.stmt]:
    known = module_of(place.module)
    return [] if known is None else known.defined.get(place.name, [])


def _resolve(module: str, node: ast.expr) -> Place | None:
    """What a name, or a name in a module (`plot.heatmap`), stands for."""
    if isinstance(node, ast.Name):
        return locate(module, node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolve(module, node.value)
        if owner is not None and not owner.name:
            return locate(owner.module, node.attr)
    return None


@cache
def _contents(place: Place) -> tuple[str, frozenset[Place], frozenset[str]]:
    """A definition as text, what in the package it names, and the attributes it uses of others."""
    text, named, attributes = [], set[Place](), set[str]()
    for node in _nodes(place):
        text.append(repr(_plain(node)))
        for part in _parts(node):
            found = _resolve(place.module, part) if isinstance(part, ast.expr) else None
            if found is not None:
                named.add(found)
            elif isinstance(part, ast.Attribute):
                attributes.add(part.attr)
    return "\n".join(text), frozenset(named), frozenset(attributes)


@cache
def _methods(module: str) -> Mapping[str, frozenset[Place]]:
    """The methods of the classes of a module by their own names."""
    known, found = module_of(module), dict[str, frozenset[Place]]()
    for name in known.defined if known else ():
        _, dot, method = name.partition(".")
        if dot:
            found[method] = found.get(method, frozenset()) | {Place(module, name)}
    return found


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """A piece of code and all in it that decides what it does."""
    yield node
    for field, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST) and field not in LEFT_OUT and not _is_prose(one):
                yield from _parts(one)


def _is_prose(node: ast.AST) -> bool:
    """Whether this is a docstring, or another picture within a class."""
    if isinstance(node, ast.FunctionDef):
        return node.name.startswith("picture_")
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _plain(node: Any) -> Any:  # noqa: ANN401 -- whatever a tree of Python holds
    """A piece of code as text has it in every version of Python."""
    if isinstance(node, list):
        return [_plain(one) for one in node if not _is_prose(one)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in LEFT_OUT)
    return [type(node).__name__, *((name, _plain(v)) for name, v in fields if v not in (None, []))]


def _find(mro: Iterable[Place], method: str) -> Place | None:
    """Where a method of a class is defined, be it by a name that stands for another's."""
    for cls in mro:
        for node in _nodes(place := Place(cls.module, f"{cls.name}.{method}")):
            if isinstance(node, ast.FunctionDef):
                return place
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                owner = _resolve(cls.module, node.value.value)
                return _find(classes(owner), node.value.attr) if owner else None
            return None
    return None


def reached(recipe: Place, method: str) -> set[Place]:
    """Every definition that decides how a method of a recipe draws; none where it is not there."""
    mro = tuple(dict.fromkeys(classes(recipe)))
    start, files = _find(mro, method), {cls.module for cls in mro}
    todo, seen = [start, *(Place(*place) for place in SHARED)] if start else [], set[Place]()
    while todo:
        place = todo.pop()
        if place in seen or not (place.name and (place == start or FOLLOWED.match(place.module))):
            continue
        seen.add(place)
        _, named, attributes = _contents(place)
        todo += named
        for module in {place.module, *files}:
            todo += (p for a in attributes for p in _methods(module).get(a, ()))
    return seen


def digest(recipe: Place, method: str) -> str:
    """The digest of what a method of a recipe draws; empty where it draws nothing (any more)."""
    texts = sorted(_contents(place)[0] for place in reached(recipe, method))
    start = _find(tuple(dict.fromkeys(classes(recipe))), method)
    caption = _caption(start) if start else ""
    whole = "\n".join([caption, *texts])
    return hashlib.sha256(whole.encode()).hexdigest()[:DIGITS] if texts else ""


def newest_change(recipe: Place, method: str) -> float:
    """When a file that decides how a method draws was last changed, in seconds."""
    files = {file_of(place.module) for place in reached(recipe, method)}
    return max((file.stat().st_mtime for file in files if file), default=0.0)


def _caption(method: Place) -> str:
    heads = [node for node in _nodes(method) if isinstance(node, ast.FunctionDef)]
    return " ".join((ast.get_docstring(heads[0]) or "").split())


def place_of(entry: Entry) -> Place | None:
    """The class of a recipe of the zoo."""
    return locate("everynet." + entry.file.removesuffix(".py").replace("/", "."), entry.cls)
