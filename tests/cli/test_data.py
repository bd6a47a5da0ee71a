"""`eirehn data`, against a server on this machine and against archives made here."""

import hashlib
import os
import subprocess
import sys

import pytest
from helpers.har_archive import published_files, some_arrays, zipped
from helpers.server import serving

from eirehn.cli import main
from eirehn.data import har
from eirehn.data.download import Remote, data_dir

REAL = data_dir().resolve()
needs_data = pytest.mark.skipif(not (REAL / "ptb").exists(), reason="Penn Treebank is not here: `eirehn data ptb`")


@pytest.fixture(scope="module")
def inner():
    return zipped(published_files(some_arrays()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EIREHN_DATA_DIR", str(tmp_path / "data"))
    for name, array in some_arrays().items():
        monkeypatch.setitem(har.PUBLISHED, name, har.digest(array))
    return tmp_path / "data" / "har"


@pytest.fixture
def server(inner, monkeypatch):
    with serving(inner) as server:
        remote = Remote("har.zip", server.url, "sha256:" + hashlib.sha256(inner).hexdigest(), len(inner))
        monkeypatch.setattr(har, "REMOTES", (remote,))
        yield server


def test_downloaded_made_and_then_already_there(folder, server, capsys):
    assert main(["data", "har"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"har: ready and checked: {folder}\n")
    assert "CC BY 4.0" in said.out
    assert "Anguita" in said.out
    assert said.err == ""
    assert os.listdir(folder) == ["har.npz"]
    before = (folder / "har.npz").stat()
    assert main(["data", "har"]) == 0
    assert capsys.readouterr().out.startswith(f"har: already there, checked: {folder}\n")
    after = (folder / "har.npz").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert len(server.seen) == 1


def test_no_address_will_do(folder, server, capsys):
    server.status = 404
    assert main(["data", "har"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("eirehn: cannot download har.zip (127.0.0.1: HTTP 404 Not Found)")
    assert said.err.endswith("give its path with --from PATH\n")
    assert said.err.count("\n") == 1
    assert not folder.parent.exists()


def test_from_a_file_to_another_folder(folder, tmp_path, inner, capsys):
    source = tmp_path / "mine.zip"
    source.write_bytes(inner)
    assert main(["data", "har", "--from", str(source), "--out", str(tmp_path / "other")]) == 0
    assert f"set EIREHN_DATA_DIR={tmp_path / 'other'}" in capsys.readouterr().out
    assert (tmp_path / "other" / "har" / "har.npz").exists()
    assert source.read_bytes() == inner
    assert not folder.exists()


@pytest.mark.parametrize("content", [b"mine", None])
def test_what_is_in_the_way_is_not_lost(folder, tmp_path, inner, content, capsys):
    source = tmp_path / "mine.zip"
    source.write_bytes(inner)
    folder.mkdir(parents=True)
    target = folder / "har.npz"
    target.write_bytes(inner if content is None else content)
    assert main(["data", "har", "--from", str(source)]) == 2
    assert capsys.readouterr().err.endswith("move it away first\n")
    assert target.read_bytes() == (inner if content is None else content)
    assert os.listdir(folder) == ["har.npz"]


@needs_data
@pytest.mark.slow
def test_the_real_command(tmp_path):
    line = [sys.executable, "-m", "eirehn", "data", "ptb", "--from", str(REAL / "ptb"), "--out", "here"]
    for expected in ("ready and checked", "already there, checked"):
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        assert expected in done.stdout
        assert "Linguistic Data Consortium" in done.stdout
    assert len(os.listdir(tmp_path / "here" / "ptb")) == 3
