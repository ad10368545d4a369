"""The Python package index as pip sees it: which files a project has there.

Pip's own settings say which indexes to query and which certificates to trust: the environment
(PIP_INDEX_URL and so on) takes precedence over its configuration files. A project's page is read
by the simple API, as JSON or HTML, over http(s) or from a folder. A distribution found there is
read as a plain zip or tar: it is never built, installed or run.
"""

from __future__ import annotations

import base64
import configparser
import http.client
import json
import os
import re
import ssl
import sys
import urllib.parse
import urllib.request
import urllib.response
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAlias

DEFAULT = "https://pypi.org/simple"
"""Where pip looks unless its settings say otherwise."""
ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.1"
)
PAGE = 8 << 20
"""A page of an index is not longer than this many bytes."""
TIMEOUT = 30.0  # s without a byte

Response: TypeAlias = http.client.HTTPResponse | urllib.response.addinfourl
"""What an address gives; the second for a file."""


@dataclass(frozen=True)
class Link:
    """One file of a project."""

    filename: str
    url: str
    sha256: str = ""


def setting(name: str) -> str:
    """A setting of pip, from the environment or its configuration files; "" where it has none."""
    if value := os.environ.get("PIP_" + name.upper().replace("-", "_")):
        return value
    parser = configparser.RawConfigParser()
    parser.optionxform = _canonical  # type: ignore[assignment]  # pip takes index_url as well
    try:
        parser.read(_configuration_files(), encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise OSError(f"pip's configuration cannot be read: {error}") from error
    for section in ("install", "global"):
        if value := parser.get(section, name, fallback=""):
            return value
    return ""


def _configuration_files() -> list[Path]:
    """Where pip keeps its settings; a later file overrules an earlier one."""
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # there is none, and the working directory must not be taken for it
        home = Path(os.devnull)
    if sys.platform == "win32":
        roots = [os.environ.get("PROGRAMDATA"), os.environ.get("APPDATA")]
        found = [Path(root) / "pip" / "pip.ini" for root in roots if root]
        found += [home / "pip" / "pip.ini", Path(sys.prefix) / "pip.ini"]
    else:
        shared = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        own = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        found = [Path(root) / "pip" / "pip.conf" for root in reversed(shared.split(":")) if root]
        found += [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", own / "pip" / "pip.conf"]
        if sys.platform == "darwin":
            support = Path("Library/Application Support/pip/pip.conf")
            found = [Path("/") / support, *found, home / support]
        found.append(Path(sys.prefix) / "pip.conf")
    return [*found, Path(named)] if named else found


def pages(project: str) -> list[str]:
    """Addresses and folders that may list the files of a project, in the order pip has them."""
    found = setting("find-links").split()
    if setting("no-index").lower() in ("", "0", "false", "no", "off"):
        indexes = [setting("index-url") or DEFAULT, *setting("extra-index-url").split()]
        found = [f"{index.rstrip('/')}/{_canonical(project)}/" for index in indexes] + found
    return found


def distributions(page: str, project: str, version: str) -> list[Link]:
    """Files of one version that a page lists, wheels first."""
    links = [link for link in _links(page) if _names(link.filename, project, version)]
    return sorted(links, key=lambda link: not link.filename.endswith(".whl"))


def open_url(url: str, headers: Mapping[str, str]) -> Response:
    """Open an address with pip's certificates and proxy; a password in it stays with its host."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("https", "http", "file"):
        raise OSError(f"{hide(url)} is no http or file address")
    login, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), headers=dict(headers))
    if login:
        token = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    handlers: list[urllib.request.BaseHandler] = []
    if parts.scheme == "https":
        handlers.append(urllib.request.HTTPSHandler(context=_tls(parts.hostname or "")))
    if proxy := setting("proxy"):
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    response: Response = urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT)
    return response


def hide(url: str) -> str:
    """An address without the password it may hold."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _tls(host: str) -> ssl.SSLContext:
    certificates = setting("cert")
    if certificates and not Path(certificates).exists():
        raise OSError(f"pip's cert ({certificates}) does not exist")
    if not certificates:
        context = ssl.create_default_context()
    elif Path(certificates).is_dir():
        context = ssl.create_default_context(capath=certificates)
    else:
        context = ssl.create_default_context(cafile=certificates)
    if host in (trusted.rsplit(":", 1)[0] for trusted in setting("trusted-host").split()):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # as pip does: the contents have checksums of ours
    return context


def _links(page: str) -> Iterator[Link]:
    """What a page or folder lists; nothing where a folder does not exist."""
    path = _folder(page)
    if path is not None and not (path / "index.html").is_file():
        files = sorted(path.iterdir()) if path.is_dir() else []
        yield from (Link(file.name, file.as_uri()) for file in files)
        return
    url = page if path is None else (path / "index.html").resolve().as_uri()
    with open_url(url, {"Accept": ACCEPT}) as response:
        kind = response.headers.get_content_type()
        base, body = response.geturl(), response.read(PAGE)
    login = urllib.parse.urlsplit(page).netloc.rpartition("@")
    for link in _json_links(body) if kind.endswith("json") else _html_links(body):
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(base, link.url))
        if parts.scheme == "file" and path is None:
            continue  # an index out there has no say about files here
        if login[1] and parts.netloc == login[2]:
            parts = parts._replace(netloc="".join(login))
        yield Link(link.filename, parts._replace(fragment="").geturl(), link.sha256)


def _folder(page: str) -> Path | None:
    if page.startswith("file:"):
        return Path(urllib.request.url2pathname(urllib.parse.urlsplit(page).path))
    return None if "://" in page else Path(os.path.expanduser(page))


def _json_links(body: bytes) -> Iterator[Link]:
    try:
        listing: dict[str, Any] = json.loads(body)
        for file in listing["files"]:
            hashes = file.get("hashes") or {}
            yield Link(str(file["filename"]), str(file["url"]), str(hashes.get("sha256", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OSError(f"the page of the index cannot be read: {error!r}") from error


class _Anchors(HTMLParser):
    """Collects the addresses a page links to."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where a link leads."""
        if tag == "a" and (address := dict(attrs).get("href")):
            self.addresses.append(address)


def _html_links(body: bytes) -> Iterator[Link]:
    anchors = _Anchors()
    anchors.feed(body.decode("utf-8", errors="replace"))
    for address in anchors.addresses:
        parts = urllib.parse.urlsplit(address)
        digest = re.search(r"sha256=([0-9a-f]{64})", parts.fragment)
        filename = urllib.parse.unquote(parts.path.rpartition("/")[2])
        yield Link(filename, address, digest[1] if digest else "")


def _names(filename: str, project: str, version: str) -> bool:
    """Whether a file is a wheel or source archive of that version."""
    if filename.endswith(".whl"):
        name, found = (*filename.split("-"), "", "")[:2]
    else:
        stem = re.sub(r"\.(tar\.gz|zip)$", "", filename)
        name, _, found = stem.rpartition("-") if stem != filename else ("", "", "")
    return _canonical(name) == _canonical(project) and found == version


def _canonical(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()
