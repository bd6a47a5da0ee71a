"""Downloads from a server on this machine that breaks and lies, and the folders that data lie in."""

import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.server import serving

from eirehn._internal.files import RunError
from eirehn.data import download
from eirehn.data.download import DownloadError, Remote, cache_dir, data_dir, fetch

CONTENT = bytes(range(256)) * 4000


def remote(url, content=CONTENT, **changes):
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    return replace(Remote("some file.bin", url, digest, len(content)), **changes)


@pytest.fixture
def server():
    with serving(CONTENT) as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "new" / "data"


def left(folder):
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_a_file_arrives_whole(server, folder, capfd):
    path = fetch([remote(server.url)], folder)
    assert path == folder / "some file.bin"
    assert path.read_bytes() == CONTENT
    assert left(folder) == ["some file.bin"]
    assert capfd.readouterr() == ("", "")  # a bar is for terminals


def test_a_wrong_digest_names_both_and_leaves_nothing_behind(server, folder):
    server.content = CONTENT[:-1] + b"!"
    with pytest.raises(DownloadError) as caught:
        fetch([remote(server.url)], folder)
    for each in ("some file.bin", *(hashlib.sha256(content).hexdigest() for content in (CONTENT, server.content))):
        assert each in str(caught.value)
    assert left(folder) == []


@pytest.mark.parametrize("length", [True, False])
def test_more_bytes_than_there_should_be_are_not_kept(server, folder, length, monkeypatch):
    server.length = length
    server.content = CONTENT * 20
    with pytest.raises(RunError, match="more bytes than the published file"):
        fetch([remote(server.url)], folder)
    monkeypatch.setattr(download, "LARGEST", 500_000)
    with pytest.raises(RunError, match="more bytes than the published file"):
        fetch([remote(server.url, size=None)], folder)
    assert left(folder) == []


def test_a_connection_that_breaks_off(server, folder):
    server.cut = 100_000
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1: the connection was lost"):
        fetch([remote(server.url)], folder)
    assert left(folder) == []


def test_a_server_that_stays_silent(server, folder, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.1)
    server.stall = 0.5
    with pytest.raises(DownloadError, match=r"timed out|no network|broke off"):
        fetch([remote(server.url)], folder)
    assert left(folder) == []


def test_the_first_that_will_do(server, folder):
    with serving(b"gone") as gone, serving(CONTENT) as unused:
        gone.status = 404
        assert fetch([remote(gone.url), remote(server.url), remote(unused.url)], folder).read_bytes() == CONTENT
        assert (len(gone.seen), len(server.seen), len(unused.seen)) == (1, 1, 0)


def test_every_address_says_why_not(server, folder):
    server.status = 404
    with pytest.raises(DownloadError) as caught:
        fetch([remote(server.url), remote("http://nowhere.invalid/file")], folder)
    assert str(caught.value) == (
        "cannot download some file.bin (127.0.0.1: HTTP 404 Not Found); cannot download some file.bin "
        "(nowhere.invalid: no network, or no such host); download it by other means and give its path with "
        "--from PATH"
    )


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot write"):
        fetch([remote(server.url)], tmp_path / "file" / "data")


@pytest.mark.skipif(sys.platform != "linux", reason="every platform has its own folders")
@pytest.mark.parametrize(
    ("which", "variables", "expected"),
    [
        (data_dir, {}, "/home/me/.local/share/eirehn"),
        (data_dir, {"EIREHN_DATA_DIR": "mine"}, "mine"),
        (cache_dir, {}, "/home/me/.cache/eirehn"),
        (cache_dir, {"EIREHN_CACHE_DIR": "mine"}, "mine"),
    ],
)
def test_where_data_and_caches_are_kept(monkeypatch, which, variables, expected):
    for name in ("EIREHN_DATA_DIR", "EIREHN_CACHE_DIR", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert which() == Path(expected)
