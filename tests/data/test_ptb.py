"""Penn Treebank: out of folders and archives good and bad, downloaded, and the published text."""

import hashlib
import io
import tarfile
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from helpers.server import serving

from eirehn._internal.files import RunError
from eirehn.data import ptb
from eirehn.data.download import DownloadError, Remote, data_dir
from eirehn.data.ptb import PtbData, complete, download, prepare
from eirehn.data.vocabulary import EOS, UNK

REAL = data_dir() / "ptb"
needs_data = pytest.mark.skipif(
    not (REAL / "ptb.train.txt").exists(), reason="Penn Treebank is not here: `eirehn data ptb` gets it"
)
TEXTS = {"ptb.train.txt": b" a b \n c \n", "ptb.valid.txt": b" a \n", "ptb.test.txt": b" c <unk> \n"}
NOWHERE = "http://nowhere.invalid/"


@pytest.fixture
def published(monkeypatch):
    """As if these texts were the published ones."""
    remotes = [
        Remote(name, NOWHERE, "sha256:" + hashlib.sha256(content).hexdigest(), len(content))
        for name, content in TEXTS.items()
    ]
    monkeypatch.setattr(ptb, "REMOTES", remotes)
    monkeypatch.setattr(ptb, "ARCHIVE", Remote("all.tgz", NOWHERE, "md5:0"))
    return remotes


def tar(texts, *, prefix="./simple-examples/data/", mode="w:gz", extra=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for info, content in [*extra, *((tarfile.TarInfo(prefix + name), text) for name, text in texts.items())]:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def kept(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else None


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_out_of_the_archive(published, tmp_path, mode):
    source = tmp_path / "a.tgz"
    source.write_bytes(tar({"README": b"x", "ptb.char.test.txt": b"y", **TEXTS}, mode=mode))
    prepare(source, tmp_path / "new")
    assert kept(tmp_path / "new") == TEXTS
    assert complete(tmp_path / "new")


@pytest.mark.parametrize("place", [".", "data", "simple-examples/data"])
def test_out_of_a_folder(published, tmp_path, place):
    folder = tmp_path / "source" / place
    folder.mkdir(parents=True)
    for name, content in TEXTS.items():
        (folder / name).write_bytes(content)
    prepare(tmp_path / "source", tmp_path / "new")
    assert kept(tmp_path / "new") == TEXTS


def link(name):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return info, TEXTS["ptb.train.txt"]  # a link may claim any size


def test_nothing_is_unpacked_whatever_members_are_called(published, tmp_path):
    extra = [(tarfile.TarInfo("../evil"), b"evil"), (tarfile.TarInfo("/etc/evil"), b"evil"), (link("link")[0], b"")]
    (tmp_path / "a.tgz").write_bytes(tar(TEXTS, extra=extra))
    prepare(tmp_path / "a.tgz", tmp_path / "new")
    assert kept(tmp_path / "new") == TEXTS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar({**TEXTS, "ptb.test.txt": b" c <unk> !"}), "ptb.test.txt of .* is not the published file"),
        (tar({**TEXTS, "ptb.test.txt": b"longer than published"}), "has no ptb.test.txt"),
        (tar({name: text for name, text in TEXTS.items() if "valid" not in name}), "has no ptb.valid.txt"),
        (tar(TEXTS, prefix="elsewhere/"), "has no ptb.train.txt"),
        (tar({name: TEXTS[name] for name in list(TEXTS)[1:]}, extra=[link("x/data/ptb.train.txt")]), "has no"),
        (tar(TEXTS)[:-30], "damaged|has no"),
        (tar(TEXTS, mode="w")[:1600], "damaged|has no"),
        (b"no archive", "damaged"),
        (b"", "damaged"),
    ],
)
def test_an_archive_that_will_not_do_leaves_nothing(published, tmp_path, content, message):
    source = tmp_path / "a.tgz"
    source.write_bytes(content)
    with pytest.raises(RunError, match=message):
        prepare(source, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_bombs(published, tmp_path, monkeypatch):
    source = tmp_path / "a.tgz"
    source.write_bytes(tar(TEXTS, extra=[(tarfile.TarInfo("zeros"), bytes(3_000_000))]))
    monkeypatch.setattr(ptb, "LARGEST_TOTAL", 2_000_000)
    with pytest.raises(RunError, match="too large"):
        prepare(source, tmp_path / "new")
    monkeypatch.undo()
    monkeypatch.setattr(ptb, "MOST_MEMBERS", 2)
    with pytest.raises(RunError, match="too many"):
        prepare(source, tmp_path / "new")


def test_downloaded_each_by_itself(tmp_path, published, monkeypatch):
    with ExitStack() as stack:
        urls = [stack.enter_context(serving(content)).url for content in TEXTS.values()]
        each = [replace(remote, url=url) for remote, url in zip(published, urls, strict=True)]
        monkeypatch.setattr(ptb, "REMOTES", each)
        assert download(tmp_path / "new") == tmp_path / "new"
    assert kept(tmp_path / "new") == TEXTS


def test_the_published_archive_when_there_is_no_other_way(published, tmp_path, monkeypatch):
    content = tar(TEXTS)
    with serving(content) as server:
        archive = Remote("all.tgz", server.url, "md5:" + hashlib.md5(content).hexdigest())
        monkeypatch.setattr(ptb, "ARCHIVE", archive)
        assert download(tmp_path / "new") == tmp_path / "new" / "all.tgz"
    assert kept(tmp_path / "new") == {"all.tgz": content}


def test_no_way_at_all(published, tmp_path):
    with pytest.raises(DownloadError) as caught:
        download(tmp_path / "new")
    assert str(caught.value) == (
        "cannot download ptb.train.txt (nowhere.invalid: no network, or no such host); "
        "cannot download all.tgz (nowhere.invalid: no network, or no such host); "
        "download it by other means and give its path with --from PATH"
    )


def test_a_file_in_the_way(published, tmp_path):
    assert not complete(tmp_path)
    (tmp_path / "ptb.test.txt").write_bytes(b"mine")
    with pytest.raises(RunError, match="move it away first"):
        complete(tmp_path)


def test_data_that_are_not_there_or_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("EIREHN_DATA_DIR", str(tmp_path))
    with pytest.raises(RunError, match="eirehn data ptb"):
        PtbData().load()
    (tmp_path / "ptb").mkdir()
    for name in TEXTS:
        (tmp_path / "ptb" / name).write_bytes(b"changed")
    with pytest.raises(RunError, match="not the published file"):
        PtbData().load()


@needs_data
def test_the_published_figures():
    data = PtbData().texts()
    assert [len(part) for part in data[:3]] == [929_589, 73_760, 82_430]
    assert len(data.vocabulary) == 10_000
    assert EOS in data.vocabulary
    assert data.vocabulary.tokens[:4] == ("the", UNK, EOS, "N")
    for part, lines in zip(data[:3], (42_068, 3_370, 3_761), strict=True):
        assert part.dtype == torch.int32
        assert int((part == data.vocabulary.tokens.index(EOS)).sum()) == lines
