"""hub: entry points of local folders, cached repositories, downloads, and what is said when there is no network."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.hub.fetcher as fetcher
import megengine.module as M
from megengine import hub
from megengine.hub.exceptions import (
    FetcherError,
    GitCheckoutError,
    GitPullError,
    InvalidGitHost,
    InvalidProtocol,
    InvalidRepo,
)
from megengine.hub.tools import cd, check_module_exists, load_module, sha256_of
from megengine.utils.http_download import HTTPDownloadError, download_from_url

HUBCONF = '''
dependencies = ["numpy"]
import megengine.module as M
from helper_of_repo import WIDTH

def mlp(width=WIDTH, **kwargs):
    """A small net."""
    return M.Linear(2, width, **kwargs)

def _hidden():
    pass

NUMBER = 3
'''


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def repo(tmp_path, home):
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUBCONF)
    (folder / "helper_of_repo.py").write_text("WIDTH = 5\n")
    yield folder
    sys.modules.pop("helper_of_repo", None)


def archive(**files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
    return out.getvalue()


# ---- local folders


def test_a_local_folder(repo, monkeypatch):
    where = str(repo)
    path = list(sys.path)
    assert hub.list(where) == ["mlp"]
    assert hub.help(where, "mlp") == "A small net."
    net = hub.load(where, "mlp")
    assert isinstance(net, M.Linear) and net.weight.shape == (5, 2)
    assert hub.load(where, "mlp", 3, bias=False).bias is None
    assert hub.import_module(where, "github.com").NUMBER == 3
    assert sys.path == path and "hubconf.py" not in sys.modules
    monkeypatch.chdir(repo)
    assert hub.list(".") == ["mlp"] and hub.list("./") == ["mlp"]


def test_local_errors(repo, tmp_path):
    with pytest.raises(RuntimeError, match="has no entry 'cnn'; it has mlp"):
        hub.load(str(repo), "cnn")
    with pytest.raises(RuntimeError, match="no entry '_hidden'"):
        hub.help(str(repo), "_hidden")
    with pytest.raises(InvalidRepo, match="no folder"):
        hub.list(str(tmp_path / "missing"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidRepo, match="no hubconf.py"):
        hub.list(str(empty))
    (repo / "hubconf.py").write_text("dependencies = ['numpy', 'no_such_module_x']\n")
    with pytest.raises(RuntimeError, match="needs missing modules: no_such_module_x"):
        hub.list(str(repo))


# ---- repositories beside each other


def package(tmp_path, name: str, **files: str) -> str:
    folder = tmp_path / name
    for path, text in files.items():
        file = folder / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / (file.name + ".py")).write_text(text)
    return str(folder)


def test_packages_of_one_name_do_not_mix(tmp_path, home, monkeypatch):
    """Every repository finds its own ``models``, at once and later; the program keeps its own."""
    text = """
import importlib
import models.net
from models import net as again
from models.part import value

def names():
    from models.late import NAME          # a module that is imported for the first time here
    return models.net.NAME, again.NAME, value(), NAME

def dynamic():
    return FOUND

FOUND = importlib.import_module("models.net").NAME
"""

    def repo(name):
        own = f"NAME = {name!r}\n"
        return package(
            tmp_path, name, hubconf=text, models__net=own, models__late=own, models__later=own,
            models__part="def value():\n    from . import later\n    return later.NAME\n",
        )  # fmt: skip

    a, b = repo("a"), repo("b")
    mine = types.ModuleType("models")
    monkeypatch.setitem(sys.modules, "models", mine)
    path, modules, finders = list(sys.path), set(sys.modules), list(sys.meta_path)
    from_a, from_b = hub.import_module(a), hub.import_module(b)
    for _ in range(2):
        assert from_a.names() == ("a",) * 4 and from_b.names() == ("b",) * 4
        assert from_a.dynamic() == "a" and from_b.dynamic() == "b"
        assert hub.load(a, "names") == ("a",) * 4
    assert sys.modules["models"] is mine and sys.path == path and sys.meta_path == finders
    assert not any(m.startswith(("models.", "hubconf")) for m in set(sys.modules) - modules)


def test_modules_of_one_repository_are_not_found_by_another(tmp_path, home):
    a = package(tmp_path, "a", hubconf="import only_in_a\ndef f():\n    return only_in_a.x\n", only_in_a="x = 1\n")
    b = package(tmp_path, "b", hubconf="def f():\n    import only_in_a\n    return only_in_a.x\n")
    outer = f"from megengine import hub\nimport only_in_c\ninner = hub.import_module({b!r})\n"
    c = package(
        tmp_path, "c", hubconf=outer + "def f():\n    return only_in_c.x\n", only_in_c="x = 3\n", only_in_a="x = 2\n"
    )
    assert hub.load(a, "f") == 1
    with pytest.raises(ModuleNotFoundError, match="only_in_a"):
        hub.load(b, "f")
    assert hub.load(c, "f") == 3
    with pytest.raises(ModuleNotFoundError, match="only_in_a"):
        hub.import_module(c).inner.f()
    with pytest.raises(ModuleNotFoundError):
        import only_in_a  # noqa: F401


def test_a_repository_does_not_replace_what_everyone_uses(tmp_path, home):
    a = package(
        tmp_path, "a", numpy="x = 1\n", json="x = 1\n", hubconf="import json, numpy\ndef f():\n    return json, numpy\n"
    )
    import json

    assert hub.load(a, "f") == (json, np)


def test_repositories_that_differ_by_an_underscore(home, monkeypatch):
    asked = []

    def serve(url, dst):
        asked.append(url)
        owner = url.split("/")[3]
        Path(dst).write_bytes(archive(**{"x/hubconf.py": f"def who():\n    return {owner!r}\n"}))

    monkeypatch.setattr(fetcher, "download_from_url", serve)
    assert hub.load("a_b/c", "who") == "a_b" and hub.load("a/b_c", "who") == "a" and len(asked) == 2


# ---- hashes


def test_the_content_of_a_repository_is_checked(repo, monkeypatch):
    where, ran = str(repo), repo / "ran"
    good = sha256_of(where)
    (repo / "hubconf.py").write_text(HUBCONF + f"\nopen({str(ran)!r}, 'w')\n")
    with pytest.raises(FetcherError, match=f"is not what was asked for: its sha256 is [0-9a-f]*, not {good}"):
        hub.load(where, "mlp", sha256=good)
    assert not ran.exists()
    (repo / "hubconf.py").write_text(HUBCONF)
    assert hub.load(where, "mlp", sha256=good.upper()).weight.shape == (5, 2)
    assert hub.list(where, sha256=good) == ["mlp"] and hub.help(where, "mlp", sha256=good) == "A small net."
    assert sha256_of(where) == good  # nothing was left in it
    for change in (lambda: (repo / "new.py").write_text(""), lambda: (repo / "link").symlink_to("/tmp")):
        change()
        assert sha256_of(where) != good
        with pytest.raises(FetcherError):
            hub.import_module(where, sha256=good)
    with pytest.raises(ValueError, match="64 hexadecimal digits; got 'abc'"):
        hub.list(where, sha256="abc")


def test_compiled_files_of_a_repository_are_not_run(repo):
    """They are no part of the hash, and Python would run one that says it is up to date."""
    import importlib._bootstrap_external as external

    code = compile("WIDTH = 9", "helper_of_repo.py", "exec")
    cache = Path(importlib.util.cache_from_source(str(repo / "helper_of_repo.py")))
    cache.parent.mkdir()
    cache.write_bytes(external._code_to_hash_pyc(code, b"12345678", checked=False))
    assert hub.load(str(repo), "mlp").weight.shape == (5, 2)


def test_the_content_of_a_download_is_checked(home, tmp_path):
    source = tmp_path / "state.pkl"
    mge.save({"weight": np.ones((3, 2), "float32"), "bias": np.zeros(3, "float32")}, str(source))
    url, good = source.as_uri(), sha256_of(str(source))
    with pytest.raises(FetcherError, match="is not what was asked for"):
        hub.load_serialized_obj_from_url(url, sha256="0" * 64)
    assert not list((home / "serialized").iterdir())
    assert hub.load_serialized_obj_from_url(url, sha256=good)["bias"].shape == (3,)
    (cached,) = (home / "serialized").iterdir()
    assert hub.pretrained(url=url, sha256=good)(lambda: M.Linear(2, 3))(True).weight.shape == (3, 2)
    cached.write_bytes(b"changed")
    with pytest.raises(FetcherError, match="is not what was asked for"):
        hub.load_serialized_obj_from_url(url, sha256=good)


# ---- fetching


def test_an_archive_is_fetched_once_and_used_from_the_cache(home, monkeypatch):
    asked = []
    data = archive(**{"net-main/hubconf.py": "def one():\n    return 1\n", "net-main/sub/a.txt": "x"})

    def serve(url, dst):
        asked.append(url)
        Path(dst).write_bytes(data)
        return ""

    monkeypatch.setattr(fetcher, "download_from_url", serve)
    assert hub.load("someone/net:main", "one") == 1
    assert hub.list("someone/net:main") == ["one"]
    assert asked == ["https://github.com/someone/net/archive/main.zip"]
    hub.list("someone/net:main", use_cache=False)
    hub.list("someone/net", git_host="gitlab.com", commit="0123abc")
    assert asked[1:] == [
        "https://github.com/someone/net/archive/main.zip",
        "https://gitlab.com/someone/net/-/archive/0123abc/net-0123abc.zip",
    ]
    folders = sorted(p.name for p in (home / "hub").iterdir())
    assert len(folders) == 2 and all(f.startswith(mge.__version__.replace(".", "_") + "_") for f in folders)


def test_default_branch_is_master(home, monkeypatch):
    asked = []

    def serve(url, dst):
        asked.append(url)
        raise HTTPDownloadError("no route to host")

    monkeypatch.setattr(fetcher, "download_from_url", serve)
    with pytest.raises(FetcherError, match="no route to host.*pass the path of its folder"):
        hub.list("someone/net")
    assert asked == ["https://github.com/someone/net/archive/master.zip"]
    assert not any(p.is_dir() for p in (home / "hub").iterdir())


@pytest.mark.parametrize(
    "data, error, text",
    [
        (b"not a zip", InvalidRepo, "not a zip archive"),
        (archive(**{"a/hubconf.py": "", "b/x": ""}), InvalidRepo, "one folder; it holds a, b"),
        (archive(**{"a/hubconf.py": "", "a/../../../evil": ""}), FetcherError, "unsafe path"),
        (archive(**{"/tmp/megengine_evil": ""}), FetcherError, "unsafe path"),
    ],
)
def test_bad_archives(home, monkeypatch, data, error, text):
    monkeypatch.setattr(fetcher, "download_from_url", lambda url, dst: Path(dst).write_bytes(data))
    with pytest.raises(error, match=text):
        hub.list("someone/net")
    assert not list((home / "hub").iterdir())


@pytest.mark.parametrize(
    "name",
    [
        "net",
        "a/b/c",
        "a/",
        "x/b/",
        "a b/c",
        "-a/b",
        "a/b:c:d",
        "a/..:b",
        "a/b\n",
        "a/b:c\n",
        "a/b:/c",
        "a/b:../c",
        "a/.",
    ],
)
def test_bad_repositories(home, name):
    with pytest.raises(InvalidRepo):
        hub.list(name)


def test_bad_host_protocol_and_commit(home):
    with pytest.raises(InvalidGitHost, match="not the name of a git server"):
        hub.list("a/b", git_host="not a host")
    with pytest.raises(InvalidProtocol, match="HTTPS, SSH; got 'FTP'"):
        hub.list("a/b", protocol="FTP")
    for host in ("github.com\n", "github.com/../x", "/etc", "a@b.com"):
        with pytest.raises(InvalidGitHost):
            hub.list("a/b", git_host=host)


@pytest.mark.parametrize(
    "commit",
    ["--upload-pack=x", "../..", "..", ".", "a/../b", "abc\n", "\nabc", "/etc/passwd", "a//b", "a/", "", "a b", "a..b"],
)
@pytest.mark.parametrize("protocol", ["SSH", "HTTPS"])
def test_what_is_no_commit(home, monkeypatch, commit, protocol):
    monkeypatch.setattr(fetcher, "download_from_url", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(GitCheckoutError, match="not a commit"):
        hub.list("a/b", commit=commit, protocol=protocol)


def test_ssh_failure_names_the_reason(home, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GitPullError, match="needs the program git"):
        hub.list("a/b", protocol="SSH")


# ---- objects


def test_objects_by_url(home, tmp_path):
    source = tmp_path / "state.pkl"
    mge.save({"weight": np.ones((3, 2), "float32"), "bias": np.zeros(3, "float32")}, str(source))
    url = source.as_uri()
    got = hub.load_serialized_obj_from_url(url)
    assert got["weight"].shape == (3, 2)
    name = hashlib.sha256(url.encode()).hexdigest()[:6] + "_state.pkl"
    assert [p.name for p in (home / "serialized").iterdir()] == [name]
    source.unlink()
    assert hub.load_serialized_obj_from_url(url)["bias"].shape == (3,)  # from the cache
    with pytest.raises(FetcherError, match="offline, put the file at"):
        hub.load_serialized_obj_from_url((tmp_path / "gone.pkl").as_uri(), str(tmp_path / "other"))
    assert not list((tmp_path / "other").iterdir())


def test_pretrained(home, tmp_path):
    source = tmp_path / "state.pkl"
    mge.save({"weight": np.full((3, 2), 7, "float32"), "bias": np.zeros(3, "float32")}, str(source))

    @hub.pretrained(url=source.as_uri())
    def net(width=3):
        """doc"""
        return M.Linear(2, width)

    assert net.__doc__ == "doc" and net(width=4).weight.shape == (4, 2)
    assert (net(pretrained=True).weight.numpy() == 7).all() and (net(True).weight.numpy() == 7).all()
    with pytest.raises(TypeError):
        net(True, 4)


# ---- tools


def test_tools(tmp_path):
    file = tmp_path / "thing.py"
    file.write_text("VALUE = 4\n")
    assert load_module("thing", str(file)).VALUE == 4 and "thing" not in sys.modules
    assert check_module_exists("os.path") and not check_module_exists("no_such.thing")
    before = os.getcwd()
    with pytest.raises(KeyError), cd(str(tmp_path)):
        assert os.getcwd() == os.path.realpath(tmp_path)
        raise KeyError
    assert os.getcwd() == before


def test_download_leaves_nothing_behind(tmp_path):
    source = tmp_path / "a"
    source.write_bytes(b"abc" * 1000)
    target = tmp_path / "b"
    assert download_from_url(str(source), str(target)) == hashlib.md5(b"abc" * 1000).hexdigest()
    assert target.read_bytes() == source.read_bytes()
    for bad in ("s3://bucket/x", (tmp_path / "gone").as_uri(), "http://127.0.0.1:9/x"):
        with pytest.raises(HTTPDownloadError):
            download_from_url(bad, str(tmp_path / "c"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
