"""Write docs/api.md: what `import everynet` gives, with signatures and first lines.

`make docs` calls this; a test fails when the page is stale.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import everynet

PAGE = Path(__file__).resolve().parent / "api.md"
HEAD = """\
# Python

<!-- Made by `make docs` from everynet.__all__; do not edit. -->

What `import everynet` gives: functions, then classes, then the rooms of the library with their
public names. Blocks of the zoo, `everynet.zoo.NAME`, are in [blocks](blocks.md). A setting of a
recipe is a keyword: `everynet.recipe("lenet", lr=0.002)`; `everynet show lenet` lists them.
"""
MANY = 100  # letters of a signature from which each parameter gets a line


def signature(name: str, what: object) -> str:
    """How something is called, on one line where it fits; names of types without quotes."""
    try:
        found = inspect.signature(what)  # type: ignore[arg-type]  # what is callable
    except (TypeError, ValueError):
        return name
    given = [p for p in found.parameters.values() if not p.name.startswith("_")]
    shown = [str(parameter) for parameter in given]
    keywords = [parameter.kind is parameter.KEYWORD_ONLY for parameter in given]
    if any(keywords):
        shown.insert(keywords.index(True), "*")
    returned = found.return_annotation
    text = getattr(returned, "__name__", returned)
    arrow = "" if inspect.isclass(what) or returned is inspect.Signature.empty else f" -> {text}"
    line = f"{name}({', '.join(shown)}){arrow}"
    if len(line) > MANY:
        line = f"{name}(\n    " + ",\n    ".join(shown) + f",\n){arrow}"
    return re.sub(r"(?<=: )'([^']*)'", r"\1", line)


def first_line(what: object) -> str:
    """The sentence that a docstring begins with."""
    return (inspect.getdoc(what) or "").partition("\n")[0]


def cells(*given: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(text.replace("|", "\\|") for text in given) + " |"


def entry(name: str, what: object) -> Iterator[str]:
    """A function, or a class with what can be called on it."""
    yield f"\n### {name}\n"
    yield f"```python\n{signature(name, what)}\n```\n"
    yield inspect.getdoc(what) or ""
    if inspect.isclass(what):
        methods = [
            (method, value)
            for method, value in vars(what).items()
            if not method.startswith("_") and inspect.isfunction(value) and value.__doc__
        ]
        if methods:
            yield "\n| method | what it does |\n|---|---|"
            yield from (cells(f"`{method}`", first_line(value)) for method, value in methods)


def room(name: str, module: ModuleType) -> Iterator[str]:
    """The public names of a room; those of the zoo are on a page of their own."""
    yield f"\n### everynet.{name}\n"
    yield first_line(module)
    names = [] if name == "zoo" else sorted(getattr(module, "__all__", ()))
    shown = [(n, getattr(module, n)) for n in names]
    shown = [(n, value) for n, value in shown if first_line(value) and callable(value)]
    if shown:
        yield "\n| name | what it is |\n|---|---|"
        yield from (cells(f"`{n}`", first_line(value)) for n, value in shown)


def page() -> str:
    """The whole page."""
    given = {name: getattr(everynet, name) for name in everynet.__all__}
    rooms = {n: value for n, value in given.items() if inspect.ismodule(value)}
    classes = {n: value for n, value in given.items() if inspect.isclass(value)}
    functions = {n: value for n, value in given.items() if inspect.isfunction(value)}
    others = given.keys() - rooms.keys() - classes.keys() - functions.keys()
    lines = [HEAD, "## Functions"]
    for name, value in functions.items():
        lines += entry(name, value)
    lines.append("\n## Classes")
    for name, value in classes.items():
        lines += entry(name, value)
    lines.append("\n## Types\n")
    lines += [f"- `{name}` is `{given[name]}`" for name in sorted(others)]
    lines.append("\n## Rooms")
    for name, module in rooms.items():
        lines += room(name, module)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
