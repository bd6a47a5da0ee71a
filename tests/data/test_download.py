"""Downloads from a server on this machine that breaks, lies and lags."""

import hashlib
import io
import os
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.server import serving
from rich.console import Console

from eirehn.data import download
from eirehn.data.download import Remote, fetch
from eirehn.data.folder import data_dir, kept
from eirehn.data.part import Part
from eirehn.data.progress import bar
from eirehn.files import RunError, lock

CONTENT = bytes(range(256)) * 4000


def remote(*urls, content=CONTENT, **changes):
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    return replace(Remote("some file.bin", urls, digest, len(content)), **changes)


@pytest.fixture
def server():
    with serving(CONTENT) as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "new" / "data"


def left(folder):
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else None


def quick(remote, folder, **options):
    return fetch(remote, folder, **{"pause": 0.01, "timeout": 5.0} | options)


def test_a_file_arrives_whole_and_is_not_asked_for_again(server, folder):
    told = []
    path = quick(remote(server.url), folder, tell=lambda done, total: told.append((done, total)))
    assert path == folder / "some file.bin"
    assert path.read_bytes() == CONTENT
    assert left(folder) == ["some file.bin"]
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert told == sorted(told)
    quick(remote(server.url), folder)
    assert server.seen == [None]


@pytest.mark.parametrize("length", [True, False])
def test_a_broken_connection_is_taken_up_where_it_broke(server, folder, length):
    server.length = length
    server.cut = [100_000, 50_000, None]
    assert quick(remote(server.url), folder).read_bytes() == CONTENT
    assert server.seen == [None, "bytes=100000-", "bytes=150000-"]
    assert left(folder) == ["some file.bin"]


def test_a_later_call_goes_on_from_what_an_earlier_one_left(server, folder, monkeypatch):
    monkeypatch.setattr(download, "PATIENCE", 0)
    server.cut = [100_000, None]
    with pytest.raises(RunError, match=r"127\.0\.0\.1: the connection broke off after 100,000 of 1,024,000 bytes"):
        quick(remote(server.url), folder)
    assert left(folder) == ["some file.bin.part"]
    assert quick(remote(server.url), folder).read_bytes() == CONTENT
    assert server.seen == [None, "bytes=100000-"]


def test_a_server_without_ranges_begins_again(server, folder):
    server.ranges = False
    server.cut = [100_000, None]
    assert quick(remote(server.url), folder).read_bytes() == CONTENT
    assert server.seen == [None, "bytes=100000-"]


def test_breaks_that_bring_nothing_end_and_keep_what_came(server, folder):
    server.cut = [100_000, 0]
    with pytest.raises(RunError, match="give --from PATH"):
        quick(remote(server.url), folder)
    assert len(server.seen) == 1 + 1 + download.PATIENCE - 1
    assert (folder / "some file.bin.part").read_bytes() == CONTENT[:100_000]


def test_many_breaks_that_each_bring_something_do_not_end_it(server, folder):
    server.cut = [download.CHUNK // 2] + [download.CHUNK] * 3 + [None]
    assert quick(remote(server.url), folder).read_bytes() == CONTENT


@pytest.mark.parametrize("size_known", [True, False])
def test_a_wrong_digest_leaves_nothing_behind(server, folder, size_known):
    server.content = CONTENT[:-1] + b"!"
    asked = remote(server.url) if size_known else remote(server.url, size=None)
    with pytest.raises(RunError, match=r"what it gives is not the published file \(sha256 differs\)"):
        quick(asked, folder)
    assert not folder.parent.exists()
    assert len(server.seen) == 1


@pytest.mark.parametrize("content", [CONTENT + b"more", CONTENT[:-5], b"<html>log in first</html>"])
def test_another_size_is_refused_before_it_is_received(server, folder, content):
    server.content = content
    told = []
    with pytest.raises(RunError, match="the published one has 1,024,000"):
        quick(remote(server.url), folder, tell=lambda done, total: told.append(done))
    assert not told
    assert not folder.exists()


def test_more_bytes_than_there_should_be_are_not_received(server, folder):
    server.length = False
    server.content = CONTENT * 20
    told = []
    with pytest.raises(RunError, match="more than the published file"):
        quick(remote(server.url), folder, tell=lambda done, total: told.append(done))
    assert max(told) <= len(CONTENT)
    assert not folder.exists()


def test_without_a_known_size_there_is_a_bound(server, folder, monkeypatch):
    monkeypatch.setattr(download, "LARGEST", 500_000)
    with pytest.raises(RunError, match="it has a file of 1,024,000 bytes"):
        quick(remote(server.url, size=None), folder)
    server.length = False
    with pytest.raises(RunError, match="more than"):
        quick(remote(server.url, size=None), folder)
    assert not folder.exists()


def test_what_an_earlier_call_left_may_be_wrong(server, folder):
    folder.mkdir(parents=True)
    part = folder / "some file.bin.part"
    part.write_bytes(b"of another file")
    assert quick(remote(server.url), folder).read_bytes() == CONTENT
    assert server.seen == ["bytes=15-", None]


@pytest.mark.parametrize("size_known", [True, False])
def test_what_an_earlier_call_left_may_be_too_long(server, folder, size_known):
    folder.mkdir(parents=True)
    (folder / "some file.bin.part").write_bytes(CONTENT + b"more")
    asked = remote(server.url) if size_known else remote(server.url, size=None)
    assert quick(asked, folder).read_bytes() == CONTENT


def test_a_part_that_is_all_there_needs_no_network(folder):
    folder.mkdir(parents=True)
    (folder / "some file.bin.part").write_bytes(CONTENT)
    assert quick(remote("http://nowhere.invalid/x"), folder).read_bytes() == CONTENT
    assert left(folder) == ["some file.bin"]


def test_addresses_are_tried_in_order(server, folder):
    with serving(b"gone") as gone, serving(CONTENT[:-1] + b"!") as wrong, serving(CONTENT) as unused:
        gone.statuses = [404]
        asked = remote(gone.url, wrong.url, server.url, unused.url)
        assert quick(asked, folder).read_bytes() == CONTENT
        assert (len(gone.seen), len(wrong.seen), len(server.seen), len(unused.seen)) == (1, 1, 1, 0)


def test_bytes_of_a_wrong_file_do_not_spoil_the_next_address(server, folder):
    with serving(b"?" * len(CONTENT)) as wrong:
        wrong.cut = [1000, 0]
        assert quick(remote(wrong.url, server.url), folder).read_bytes() == CONTENT
        assert server.seen == ["bytes=1000-", None]


def test_every_address_says_why_not(server, folder):
    server.statuses = [404]
    asked = remote(server.url, "http://nowhere.invalid/file")
    with pytest.raises(RunError) as caught:
        quick(asked, folder)
    message = str(caught.value)
    assert message == (
        "cannot download some file.bin (127.0.0.1: HTTP 404 Not Found; nowhere.invalid: no network, or no such "
        "host); get it by other means and give --from PATH"
    )
    assert not folder.parent.exists()


def test_nobody_listening(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(RunError, match="Connection refused"):
        quick(remote(f"http://127.0.0.1:{port}/x"), folder, pause=100.0)


def test_a_server_in_trouble_is_asked_again(server, folder):
    server.statuses = [503, 429, 200]
    assert quick(remote(server.url), folder).read_bytes() == CONTENT
    server.statuses = [500]
    with pytest.raises(RunError, match="HTTP 500"):
        quick(remote(server.url, name="other"), folder)


def test_a_server_that_falls_silent_times_out_and_is_taken_up(server, folder):
    server.stall = [1.0, 0.0]
    assert quick(remote(server.url), folder, timeout=0.2).read_bytes() == CONTENT
    assert server.seen == [None, f"bytes={len(CONTENT) // 2}-"]


def test_a_server_that_stays_silent(server, folder, monkeypatch):
    monkeypatch.setattr(download, "PATIENCE", 1)
    server.stall = [1.0]
    server.cut = [0]
    with pytest.raises(RunError, match=r"timed out: nothing came for 0\.1 s"):
        quick(remote(server.url), folder, timeout=0.1)
    assert not folder.exists()


def test_a_slow_server_is_waited_for(server, folder):
    server.stall = [0.5]
    assert quick(remote(server.url), folder, timeout=3.0).read_bytes() == CONTENT
    assert server.seen == [None]


def test_a_file_in_the_way_is_not_touched(server, folder):
    folder.mkdir(parents=True)
    mine = folder / "some file.bin"
    mine.write_bytes(b"mine")
    with pytest.raises(RunError, match="not the published file; move it away"):
        quick(remote(server.url), folder)
    assert mine.read_bytes() == b"mine"
    assert not server.seen


def test_md5_where_nothing_else_is_published(server, folder):
    digest = "md5:" + hashlib.md5(CONTENT).hexdigest()
    assert quick(remote(server.url, digest=digest, size=None), folder).read_bytes() == CONTENT


def test_a_disk_without_room_is_told_before_anything_is_asked(server, folder):
    with pytest.raises(RunError, match=r"1,000,000,000,000,000 bytes are needed, the disk has [\d,]+ left"):
        quick(remote(server.url, size=10**15), folder)
    assert not server.seen
    assert not folder.parent.exists()


@pytest.mark.skipif(os.name == "nt", reason="limits on files are POSIX")
def test_a_write_that_fails_is_told_and_what_came_is_kept(server, folder):
    code = f"""
        import resource
        from pathlib import Path
        from eirehn.data.download import Remote, fetch
        from eirehn.files import RunError
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        try:
            fetch({remote(server.url)!r}, Path({str(folder)!r}), pause=0.01)
        except RunError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout == f"cannot write {folder / 'some file.bin.part'}: File too large\n"
    assert (folder / "some file.bin.part").read_bytes() == CONTENT[:300_000]
    assert len(server.seen) == 1
    assert quick(remote(server.url), folder).read_bytes() == CONTENT


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot write"):
        quick(remote(server.url), tmp_path / "file" / "data")


def test_ctrl_c_keeps_what_came(server, folder):
    def stop(done, total):
        if done > 300_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick(remote(server.url), folder, tell=stop)
    came = (folder / "some file.bin.part").read_bytes()
    assert CONTENT.startswith(came)
    assert len(came) > 300_000
    quick(remote(server.url), folder)
    assert server.seen == [None, f"bytes={len(came)}-"]


def test_one_process_at_a_time(server, folder):
    folder.mkdir(parents=True)
    with open(folder / "some file.bin.part", "ab") as other:
        assert lock(other)
        with pytest.raises(RunError, match="in use by another process"):
            quick(remote(server.url), folder)
    assert not server.seen
    assert quick(remote(server.url), folder).exists()


def test_many_at_once_spoil_nothing(server, folder):
    def attempt(_):
        try:
            return quick(remote(server.url), folder).read_bytes() == CONTENT
        except RunError as error:
            return "in use" in str(error)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(attempt, range(24)))
    assert (folder / "some file.bin").read_bytes() == CONTENT
    assert left(folder) == ["some file.bin"]


@pytest.mark.skipif(os.name == "nt", reason="a file in use cannot be moved there")
@pytest.mark.parametrize("kept", [True, False])
def test_a_part_is_locked_until_it_is_gone(server, folder, monkeypatch, kept):
    tried = []

    def meanwhile(call):
        def attempt(path, *others):
            with pytest.raises(RunError, match="in use by another process"):
                quick(remote(server.url), folder)
            tried.append(path)
            return call(path, *others)

        return attempt

    monkeypatch.setattr(os, "replace", meanwhile(os.replace))
    monkeypatch.setattr(os, "unlink", meanwhile(os.unlink))
    if kept:
        quick(remote(server.url), folder)
    else:
        with pytest.raises(RunError, match="cannot download"):
            quick(remote(server.url, digest="sha256:" + "0" * 64), folder)
    assert [path.name for path in tried] == ["some file.bin.part"]


def test_a_file_that_another_process_has_just_brought_is_not_asked_for(server, folder, monkeypatch):
    enter = Part.__enter__

    def entered(part):
        part.target.parent.mkdir(parents=True)
        part.target.write_bytes(CONTENT)
        return enter(part)

    monkeypatch.setattr(Part, "__enter__", entered)
    assert quick(remote(server.url), folder).read_bytes() == CONTENT
    assert not server.seen
    assert left(folder) == ["some file.bin"]


def test_where_open_files_cannot_be_moved_they_are_closed_first(server, folder, monkeypatch):
    calls, move = [], os.replace

    def only_closed(path, target):
        calls.append(path)
        with open(path, "ab") as again:
            if not lock(again):
                raise PermissionError(13, "in use", str(path))
        move(path, target)

    monkeypatch.setattr(os, "replace", only_closed)
    assert quick(remote(server.url), folder).read_bytes() == CONTENT
    assert len(calls) == 2
    assert left(folder) == ["some file.bin"]


def test_a_part_moved_to_its_place_while_it_was_opened_is_not_written_to(tmp_path, monkeypatch):
    target = tmp_path / "file"

    def moved(file):
        os.replace(tmp_path / "file.part", target)
        return True

    monkeypatch.setattr("eirehn.data.part.lock", moved)
    with pytest.raises(RunError, match="in use"), Part(target):
        pass


def test_a_bar_in_a_terminal_and_nothing_elsewhere():
    for terminal in (True, False):
        out = io.StringIO()
        with bar("har.zip", Console(file=out, force_terminal=terminal, width=100)) as tell:
            tell(50, 100)
        assert ("har.zip" in out.getvalue()) is terminal


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.local/share/eirehn"),
        ("linux", {"XDG_DATA_HOME": "xdg"}, "xdg/eirehn"),
        ("darwin", {"XDG_DATA_HOME": "xdg"}, "home/Library/Application Support/eirehn"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/eirehn"),
        ("win32", {}, "home/AppData/Local/eirehn"),
        ("linux", {"EIREHN_DATA_DIR": "mine"}, "mine"),
    ],
)
def test_where_each_platform_keeps_data(monkeypatch, platform, variables, expected):
    for name in ("EIREHN_DATA_DIR", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", staticmethod(lambda: Path("home")))
    assert data_dir() == Path(expected)


def test_without_a_home(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    for name in ("EIREHN_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "home", staticmethod(homeless))
    with pytest.raises(RunError, match="set EIREHN_DATA_DIR"):
        data_dir()


def test_data_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("EIREHN_DATA_DIR", str(tmp_path))
    with pytest.raises(RunError, match=r"har\.npz is not there; get it with `eirehn data har`"):
        kept("har", "har.npz")
