"""The folder of data sets, and downloads to it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from .._internal.extras import need
from .._internal.files import RunError

need("platformdirs")

import platformdirs  # noqa: E402

CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without data
LARGEST = 1 << 30
"""Most bytes of a file whose size is not published."""


def data_dir() -> Path:
    """`EIREHN_DATA_DIR`, or `eirehn` in the platform's folder for data."""
    return _folder("EIREHN_DATA_DIR", platformdirs.user_data_path("eirehn", appauthor=False))


def cache_dir() -> Path:
    """`EIREHN_CACHE_DIR`, or `eirehn` in the platform's folder for caches."""
    return _folder("EIREHN_CACHE_DIR", platformdirs.user_cache_path("eirehn", appauthor=False, opinion=False))


def _folder(variable: str, default: Path) -> Path:
    if chosen := os.environ.get(variable):
        return Path(chosen)
    if not default.is_absolute():
        raise RunError(f"there is no home folder for data; set {variable}")
    return default


def kept(name: str, file: str) -> Path:
    """The path of a data set's file, which must exist."""
    path = data_dir() / name / file
    if not path.is_file():
        raise RunError(f"{path} is missing; get it with `eirehn data {name}`, or set EIREHN_DATA_DIR")
    return path


@dataclass(frozen=True)
class Remote:
    """A published file."""

    name: str
    url: str
    digest: str
    """As `sha256:…`, or `md5:…` where only that is published."""
    size: int | None = None
    """In bytes, where it is published."""


class DownloadError(RunError):
    """A file cannot be downloaded."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; download it by other means and give its path with --from PATH")
        self.what = what


def fetch(remotes: Sequence[Remote], folder: Path) -> Path:
    """The first of several equivalent files that can be downloaded to `folder` and has the published checksum. The
    others are deleted."""
    failed = []
    for remote in remotes:
        try:
            return _retrieve(remote, folder)
        except DownloadError as error:
            failed.append(error.what)
    raise DownloadError("; ".join(failed))


def _retrieve(remote: Remote, folder: Path) -> Path:
    try:
        import pooch  # type: ignore[import-untyped,unused-ignore]  # it has no types
        import requests
    except ImportError as error:
        raise RunError(f"downloads need {error.name}: pip install 'eirehn[train]'") from error
    pooch.get_logger().setLevel(logging.WARNING)  # no output for successful downloads
    http = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=CHUNK, timeout=TIMEOUT)

    def download(url: str, out: str, _: object) -> None:
        with open(out, "wb") as file:
            http(url, _Bounded(file, LARGEST if remote.size is None else remote.size), None)

    try:
        return Path(pooch.retrieve(remote.url, remote.digest, remote.name, folder, downloader=download))
    except requests.HTTPError as error:
        answer: Any = error.response  # the server has refused
        reason = f"HTTP {answer.status_code} {answer.reason}"
    except requests.exceptions.ChunkedEncodingError:
        reason = "the connection was lost"
    except requests.exceptions.SSLError as error:
        reason = f"its certificate cannot be verified: {error}"
    except (requests.Timeout, requests.ConnectionError) as error:
        stalled = "timed out" in str(error).lower()
        reason = f"timed out: no data for {TIMEOUT:g} s" if stalled else "no network, or no such host"
    except (requests.RequestException, ValueError) as error:  # ValueError: of another size or digest
        reason = str(error)
    except OSError as error:
        raise RunError(f"cannot write {folder / remote.name}: {error.strerror or error}") from error
    raise DownloadError(f"cannot download {remote.name} ({urlsplit(remote.url).hostname}: {reason})")


class _Bounded:
    """A file that accepts a limited number of bytes."""

    def __init__(self, file: IO[bytes], room: int) -> None:
        self.file, self.room = file, room

    def write(self, chunk: bytes) -> int:
        self.room -= len(chunk)
        if self.room < 0:
            raise ValueError("it has more bytes than the published file")
        return self.file.write(chunk)

    def flush(self) -> None:
        self.file.flush()
