import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eirehn.cache import cache_dir, cached_json


class Counted:
    def __init__(self, value=3.5):
        self.calls, self.value = 0, value

    def __call__(self):
        self.calls += 1
        return self.value


def is_float(value):
    return isinstance(value, float)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EIREHN_CACHE_DIR", str(tmp_path / "new" / "cache"))
    return tmp_path / "new" / "cache"


def test_computed_once_for_each_key(folder):
    compute = Counted()
    for _ in range(3):
        assert cached_json("name", {"a": 1}, compute, is_float) == 3.5
    assert compute.calls == 1
    cached_json("name", {"a": 2}, compute, is_float)
    cached_json("other", {"a": 1}, compute, is_float)
    assert compute.calls == 3
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize(
    "broken",
    ["", "{", "[]", "null", '{"key": {"a": 1}}', '{"key": {"a": 2}, "value": 9.9}', b"\xff\xfe\x00", "value"],
)
def test_a_corrupt_file_is_computed_anew_and_replaced(folder, broken):
    compute = Counted()
    cached_json("name", {"a": 1}, compute, is_float)
    (path,) = folder.iterdir()
    if broken == "value":
        broken = json.dumps({"key": {"a": 1}, "value": "no number"})
    path.write_bytes(broken if isinstance(broken, bytes) else broken.encode())
    assert cached_json("name", {"a": 1}, compute, is_float) == 3.5
    assert compute.calls == 2
    cached_json("name", {"a": 1}, compute, is_float)
    assert compute.calls == 2
    assert list(folder.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EIREHN_CACHE_DIR", str(tmp_path / "file" / "cache"))
    compute = Counted()
    for _ in range(2):
        assert cached_json("name", {"a": 1}, compute, is_float) == 3.5
    assert compute.calls == 2


def test_a_write_that_fails_leaves_nothing_behind(folder, monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert cached_json("name", {"a": 1}, Counted(), is_float) == 3.5
    assert list(folder.iterdir()) == []


def test_without_a_home_it_computes(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    for name in ("EIREHN_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", staticmethod(homeless))
    assert cached_json("name", {"a": 1}, Counted(), is_float) == 3.5


def test_many_writers_at_once(folder):
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: cached_json("name", {"a": 1}, Counted(), is_float), range(64)))
    assert results == [3.5] * 64
    (path,) = folder.iterdir()
    assert json.loads(path.read_text())["value"] == 3.5


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/eirehn"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "xdg/eirehn"),
        ("darwin", {"XDG_CACHE_HOME": "xdg"}, "home/Library/Caches/eirehn"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/eirehn"),
        ("win32", {}, "home/AppData/Local/eirehn"),
        ("linux", {"EIREHN_CACHE_DIR": "mine"}, "mine"),
    ],
)
def test_where_each_platform_keeps_caches(monkeypatch, platform, variables, expected):
    for name in ("EIREHN_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", staticmethod(lambda: Path("home")))
    assert cache_dir() == Path(expected)
