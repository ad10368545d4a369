"""Finds recipes by reading the files of the zoo as text, without importing them.

The recipes, classes, base classes and settings of each file are stored in an index in the user's
cache, under the file's size and time of change. Only the network that is wanted is imported, so
that listing the zoo costs no torch.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from everynet.recipes.synonyms import meant
from everynet.system import cache, user_files
from everynet.system.errors import UserError
from everynet.system.wording import nearest, written

if TYPE_CHECKING:
    from everynet.recipes.recipe import Recipe

PACKAGE = Path(__file__).parent.parent
ZOO = PACKAGE / "zoo"
KINDS = tuple(f"recipes/{name}.py" for name in ("recipe", "tabular", "training", "experiment"))
"""The files that hold the kinds of recipes, and what several share."""


class Entry(NamedTuple):
    """What the text of the zoo says of one recipe."""

    name: str
    family: str
    kind: str
    summary: str
    goal: str
    covers: tuple[str, ...]
    file: str
    cls: str
    settings: tuple[str, ...]
    variant: str = ""
    """How it differs from the first recipe of its file; empty for that one."""
    about: str = ""
    """What its class says of itself."""
    takes: tuple[str, ...] = ()
    """The kinds of data that it asks for with its setting `data`."""
    task: str = ""
    """The task that its data must be for; empty where it is not particular."""
    classes: int = 0
    """How many classes its data must have; 0 where it is not particular."""
    made_for: tuple[str, ...] = ()
    """The kinds of data, or tasks, that it was made for."""

    @property
    def idea(self) -> str:
        """One line of what it is."""
        return self.variant or self.summary


class Class(TypedDict):
    """What the text of one class says: its summary, bases, fields and class facts."""

    summary: str
    bases: list[str]
    fields: list[str]
    defaults: dict[str, str]
    facts: dict[str, Any]


class Source(TypedDict):
    """What the text of one file says of itself."""

    summary: str
    imports: dict[str, list[str]]
    classes: dict[str, Class]
    recipes: dict[str, dict[str, Any]]
    fault: str


# ---------------------------------------------------------------------------------- text of a file

_SUMMARY = re.compile(r'\A(?:\s|#[^\n]*\n)*[rR]?"""\s*([^\n]*?)\s*(?:"""|\n)')
_IMPORT = re.compile(r"^from (everynet[\w.]*) import (\([^)]*\)|[^\n]*)", re.M)
_IMPORTED = re.compile(r"(\w+)(?: as (\w+))?")
_CLASS = re.compile(r"^class (\w+)(?:\(([^:]*)\))?:", re.M)
_OUTSIDE = re.compile(r"^\S", re.M)
_FIELD = re.compile(r"^    (?!(?:goal|covers)\b)(\w+): (?!ClassVar)[^=\n]+ = (?!fact\()", re.M)
_DEFAULT = re.compile(r"^    (\w+): [\w.]+ = [\"']?([\w.+-]+)[\"']?$", re.M)
_FACT = re.compile(
    r"^    (goal|covers|kind|takes|made_for)(?:: [^=\n]+)? = (.*(?:\n(?!    [\w\"@#]).*)*)", re.M
)
_RECIPES = re.compile(r"^RECIPES\b", re.M)
_ASKED = re.compile(r'\bself\.data,\s*kind=(?:"(\w+)"|\(([^()]*)\))')
_TASK = re.compile(r'(?:\["task"\]|\.task) != "(\w+)":\s*raise')
_CLASSES = re.compile(r'\["classes"\]\) != (\d+):\s*raise')


def parse(text: str) -> Source:
    """Read a file: classes by pattern, and only what follows `RECIPES` as Python."""
    start = _RECIPES.search(text)
    above = text[: start.start()] if start else text
    source: Source = {
        "summary": _parse_summary(above),
        "imports": {},
        "classes": {match[1]: _parse_class(above, match) for match in _CLASS.finditer(above)},
        "recipes": {},
        "fault": "",
    }
    for match in _IMPORT.finditer(above):
        names = re.sub(r"#.*", "", match[2])
        source["imports"] |= {m[2] or m[1]: [match[1], m[1]] for m in _IMPORTED.finditer(names)}
    if start:
        try:
            source["recipes"] = dict(_parse_recipes(text[start.start() :]))
        except (SyntaxError, ValueError, AttributeError) as error:
            line = above.count("\n") + (getattr(error, "lineno", None) or 1)
            source["fault"] = f"line {line}: RECIPES must be a dict of literal recipes"
    return source


def _parse_summary(text: str) -> str:
    found = _SUMMARY.match(text)
    return found[1] if found else ""


def _parse_class(text: str, match: re.Match[str]) -> Class:
    bases, shorter = match[2] or "", None
    while bases != shorter:  # Training[dict[str, Tensor]] -> Training
        bases, shorter = re.sub(r"\[[^\[\]]*\]", "", bases), bases
    end = _OUTSIDE.search(text, match.end())
    body = text[match.end() : end.start() if end else len(text)]
    facts = {found[1]: _parse_literal(found[2]) for found in _FACT.finditer(body)}
    return {
        "summary": _parse_summary(body),
        "bases": [base.strip() for base in bases.split(",") if base.strip()],
        "fields": _FIELD.findall(body),
        "defaults": dict(_DEFAULT.findall(body)),
        "facts": {name: value for name, value in facts.items() if value is not None}
        | _parse_data(body),
    }


def _parse_data(body: str) -> dict[str, Any]:
    """What a class asks of its data: the kinds that it gives to `load`, the task, the classes."""
    facts: dict[str, Any] = {}
    asked = (re.findall(r"\w+", one or several) for one, several in _ASKED.findall(body))
    if kinds := [*dict.fromkeys(name for names in asked for name in names)]:
        facts["takes"] = kinds
    for name, pattern in (("task", _TASK), ("classes", _CLASSES)):
        if found := pattern.search(body):
            facts |= {"task": "classification", name: found[1]}
    return facts


def _parse_literal(text: str) -> Any:  # noqa: ANN401 -- whatever literal stands there
    """The value of a fact, plain or as `fact(...)`; None if it is no literal."""
    try:
        value = ast.parse(text.strip(), mode="eval").body
        return ast.literal_eval(value.args[0] if isinstance(value, ast.Call) else value)
    except (SyntaxError, ValueError, IndexError):
        return None


def _parse_recipes(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of the recipes with the class, the facts and the settings each is given."""
    table: Any = ast.parse(text).body[0]  # AttributeError where it has another form
    for key, call in zip(table.value.keys, table.value.values, strict=True):
        given = {word.arg: word.value for word in call.keywords if word.arg}
        names = [name for name in ("goal", "covers") if name in given]
        facts = {name: ast.literal_eval(given.pop(name)) for name in names}
        settings = {name: _as_text(value) for name, value in given.items()}
        yield key.value, {"class": ast.unparse(call.func), "settings": settings, **facts}


def _as_text(value: ast.expr) -> str:
    """A setting as it is written on the command line, or as it stands there if it is no literal."""
    try:
        return written(ast.literal_eval(value))
    except ValueError:
        return ast.unparse(value)


# -------------------------------------------------------------------------------------- the index


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


MAKER = _stamp(Path(__file__))
"""The code that is running, whatever becomes of its file meanwhile: an index is for it alone."""


def sources() -> dict[str, Source]:
    """What every file of the zoo and those of the kinds say, by their paths in the package."""
    zoo = sorted(path for path in ZOO.glob("*/*.py") if not path.name.startswith("_"))
    index = cache.home() / f"zoo-{zlib.crc32(str(PACKAGE).encode()):08x}.json"
    known = _read_index(index)
    fresh: dict[str, tuple[list[int], Source]] = {}
    for path in (*zoo, *(PACKAGE / name for name in KINDS)):
        name, stamp = path.relative_to(PACKAGE).as_posix(), _stamp(path)
        indexed = known.get(name, (None, None))
        fresh[name] = indexed if indexed[0] == stamp else (stamp, _read(path))
    if len(known) != len(fresh) or any(known[name] is not fresh[name] for name in known):
        _write_index(index, fresh)
    return {name: source for name, (_, source) in fresh.items()}


def _read(path: Path) -> Source:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return {**parse(""), "fault": "is not text in UTF-8"}


def _checksum(body: bytes) -> bytes:
    """Of an index and of the code that made it."""
    return b"%08x" % zlib.crc32(body, zlib.crc32(repr(MAKER).encode()))


def _read_index(path: Path) -> dict[str, Any]:
    """The index, if every byte of it is what this very file of code wrote."""
    try:
        checksum, _, body = path.read_bytes().partition(b"\n")
    except OSError:
        return {}
    return dict(json.loads(body)) if checksum == _checksum(body) else {}


def _write_index(path: Path, known: Mapping[str, object]) -> None:
    body = json.dumps(known).encode()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(_checksum(body) + b"\n" + body)
        beside.replace(path)
    except OSError:
        return  # without an index the zoo is read again next time


# -------------------------------------------------------------------------------------- the recipes


def entries() -> tuple[list[Entry], list[str]]:
    """Every recipe of the zoo by name, and what is wrong with files that cannot be read."""
    texts = sources()
    found: dict[str, Entry] = {}
    faults = [f"{file}: {text['fault']}" for file, text in texts.items() if text["fault"]]
    for file, text in texts.items():
        for name, given in text["recipes"].items():
            if name in found:
                faults.append(f"{file}: the name {name} is taken by {found[name].file}")
                continue
            facts, settings = follow_class(texts, file, given["class"])
            facts |= given
            cls = given["class"].split(".")[-1]
            found[name] = Entry(
                name=name,
                family=file.split("/")[1],
                kind=facts.get("kind", ""),
                summary=text["summary"],
                goal=facts.get("goal", ""),
                covers=tuple(facts.get("covers", ())),
                file=file,
                cls=cls,
                settings=settings,
                variant=_describe_variant(text, name),
                about=text["classes"][cls]["summary"] if cls in text["classes"] else "",
                takes=tuple(facts.get("takes", ())),
                task=facts.get("task", ""),
                classes=int(facts.get("classes", 0)),
                made_for=tuple(facts.get("made_for", ())),
            )
    return sorted(found.values(), key=lambda entry: (entry.family, entry.file)), faults


GENERAL = (
    *("steps", "batch_size", "lr", "schedule", "optimizer", "weight_decay", "warmup", "floor"),
    *("clip", "clip_value", "eval_every", "save_every", "seed"),
)
"""Settings of the training, which say least of what a variant is."""


def _describe_variant(source: Source, name: str) -> str:
    """How a recipe differs from the first of its file: its class, its data, or other settings."""
    recipes = source["recipes"]
    first, own = next(iter(recipes)), recipes[name]
    if name == first:
        return ""
    same = [other for other in recipes if recipes[other]["class"] == own["class"]]
    base = same[0] if same[0] != name else first
    cls = source["classes"].get(own["class"])
    before = recipes[base]["settings"]
    left = {key: cls["defaults"][key] for key in before if cls and key in cls["defaults"]}
    changed = {k: v for k, v in {**left, **own["settings"]}.items() if before.get(k) != v}
    special = {key: value for key, value in changed.items() if key not in GENERAL} or changed
    words = sorted((f"{k}={v}" for k, v in special.items()), key=lambda w: w[:5] != "data=")
    if same[0] == name:  # of another class, which says what it is
        data = [word for word in words if word.startswith("data=")]
        return " ".join((cls["summary"] if cls else f"as {base}, by {own['class']}.", *data))
    return f"as {base}, with {' '.join(words[:4]) or 'the settings of its class'}"


def follow_class(
    texts: Mapping[str, Source], file: str, cls: str, depth: int = 16
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Class facts and settings of a class, those of its base classes first."""
    source = texts.get(file)
    if source is None or depth == 0:
        return {}, ()
    if cls not in source["classes"]:  # imported as it is, or as module.Class
        head, _, tail = cls.partition(".")
        module, name = source["imports"].get(head, ["", ""])
        path = f"{module}.{name}" if tail else module
        file = path.removeprefix("everynet.").replace(".", "/") + ".py"
        return follow_class(texts, file, tail or name, depth - 1)
    own = source["classes"][cls]
    facts: dict[str, Any] = {}
    settings: dict[str, None] = {}  # an ordered set
    for base in reversed(own["bases"]):
        inherited, names = follow_class(texts, file, base, depth - 1)
        facts |= {name: fact for name, fact in inherited.items() if fact}  # not of `Recipe` alone
        settings |= dict.fromkeys(names)
    return facts | own["facts"], tuple(settings | dict.fromkeys(own["fields"]))


_NO_BLOCKS = {"NamedTuple", "Protocol", "TypedDict"}


def blocks() -> dict[str, str]:
    """The public classes of the zoo that are no recipes and no mere records, with their files.

    Networks, estimators and simulators: what `everynet.zoo.NAME` gives.
    """
    texts = sources()
    found: dict[str, str] = {}
    for file, text in texts.items():
        for name, cls in text["classes"].items() if file.startswith("zoo/") else ():
            if name.startswith("_") or _NO_BLOCKS.intersection(cls["bases"]):
                continue
            if "kind" not in follow_class(texts, file, name)[0]:
                found.setdefault(name, file)  # who comes first keeps a name; a test wants one alone
    return dict(sorted(found.items()))


def block(name: str) -> type:
    """That class; only its file is imported."""
    found: type = getattr(module_of(blocks()[name]), name)
    return found


def find(name: str) -> Recipe:
    """The recipe of that name in the zoo, or of a file outside it: `./mine.py` or `mine.py:name`.

    Only the file that holds it is imported.
    """
    if is_path(name):
        return find_outside(name)
    known: dict[str, str] = {}
    for file, text in sources().items():
        for recipe in text["recipes"]:
            known.setdefault(recipe, file)  # who comes first keeps a name
    if name not in known:
        alike = meant(name, known)
        instead = f"; write {alike}" if alike else nearest(name, known)
        raise UserError(f"there is no recipe {name}{instead}")
    return _take(module_of(known[name]), name)


def module_of(file: str) -> ModuleType:
    """The module of a file of the zoo."""
    return import_module("everynet." + file.removesuffix(".py").replace("/", "."))


def _take(module: ModuleType, name: str) -> Recipe:
    from dataclasses import replace  # noqa: PLC0415 -- a light verb needs none

    recipe: Recipe = replace(module.RECIPES[name], name=name)
    return recipe


# ---------------------------------------------------------------------------- outside the package


def is_path(name: str) -> bool:
    """Whether a name means a file outside the zoo."""
    return "/" in name or re.search(r"\.py(:|$)", name) is not None


def find_outside(name: str) -> Recipe:
    """The recipe `file.py:name`; with one recipe in the file its name may be left out."""
    from everynet.recipes.recipe import Recipe  # noqa: PLC0415 -- imports torch

    path, _, wanted = (name, "", "") if name.endswith(".py") else name.rpartition(":")
    if not path.endswith(".py"):
        raise UserError(f"{name} must be a recipe or a Python file: NAME, FILE.py or FILE.py:NAME")
    module = import_file(path)
    recipes = getattr(module, "RECIPES", None)
    if not isinstance(recipes, dict) or not recipes or {type(key) for key in recipes} != {str}:
        raise UserError(f'{path} must end in RECIPES = {{"name": Recipe(...)}}')
    if not wanted and len(recipes) > 1:
        raise UserError(f"{path} holds {len(recipes)} recipes; name one of {', '.join(recipes)}")
    wanted = wanted or next(iter(recipes))
    if wanted not in recipes:
        raise UserError(f"{path} has no recipe {wanted}{nearest(wanted, recipes)}")
    given = recipes[wanted]
    if not isinstance(given, Recipe):
        instead = f"the class; write {given.__name__}()" if isinstance(given, type) else repr(given)
        raise UserError(f"{path}: the recipe {wanted} must be a Recipe, not {instead}")
    return _take(module, wanted)


def import_file(path: str) -> ModuleType:
    """Import a file the user named, as a module of its own; its neighbours can be imported."""
    from importlib.util import module_from_spec, spec_from_file_location  # noqa: PLC0415

    file = Path(path).resolve()
    if not file.is_file():
        known = any(file.stem in text["recipes"] for text in sources().values())
        instead = f"; the recipe of that name is {file.stem}" if known else ""
        raise UserError(f"there is no file {path}{instead}")
    spec = spec_from_file_location(f"everynet_{zlib.crc32(str(file).encode()):08x}", file)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = module_from_spec(spec)
    user_files.FILES[str(file)] = path
    sys.modules[spec.name] = module  # dataclasses look their module up there
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # at the end: a neighbour shadows nothing
    try:
        _refuse_null_bytes(file)
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = f" line {error.lineno}" if error.lineno else _line(error, file)
        named = user_files.FILES.get(str(error.filename), error.filename) or path
        raise UserError(f"{named}{where}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        where, said = _line(error, file), " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{path}{where} cannot be imported: {said}") from error
    return module


def _refuse_null_bytes(file: Path) -> None:
    """Before Python does: one raises ValueError, another SyntaxError, and none names the line."""
    before, found, _ = file.read_bytes().partition(b"\0")
    if found:
        where = (str(file), before.count(b"\n") + 1, None, None)
        raise SyntaxError("source code cannot contain null bytes", where)


def _line(error: BaseException, file: Path) -> str:
    """The line of the file that an error came through, in words; empty where it came through none.

    What the file imports may have raised it: its own line is the one the user can look at.
    """
    from traceback import extract_tb  # noqa: PLC0415 -- a light verb needs none

    frames = extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f" line {lines[-1]}" if lines else ""
