"""Published files over HTTP: resumed where a connection broke off, kept only when they are what was published."""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..files import RunError
from .part import Part

Tell = Callable[[int, int | None], None]
"""Told the bytes that are here, and how many there will be, where that is known."""

CHUNK = 1 << 18
PATIENCE = 4
"""So many breaks in a row that brought less than a chunk, and an address is given up."""
LARGEST = 1 << 30
"""A file whose size is not known may have so many bytes."""


@dataclass(frozen=True)
class Remote:
    """A published file, the same at each of its addresses."""

    name: str
    urls: tuple[str, ...]
    digest: str
    """As `sha256:…`, or `md5:…` where no other is published."""
    size: int | None = None
    """In bytes, where it is published."""


class DownloadError(RunError):
    """No address of a file would do."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; get it by other means and give --from PATH")
        self.what = what


class RefusedError(Exception):
    """This address will not do."""


class BrokenError(Exception):
    """It may go on when asked again."""


def fetch(
    remote: Remote, folder: Path, *, tell: Tell | None = None, timeout: float = 30.0, pause: float = 1.0
) -> Path:
    """The file in `folder`, from there if it has it, else from the first of its addresses that will do.

    What a broken connection left is kept beside it as `NAME.part`, and the next call goes on from there.

    Args:
        remote: the file, its addresses and its digest.
        folder: where to put it; made if need be.
        tell: told how far it is.
        timeout: seconds without a byte after which a connection counts as broken.
        pause: seconds before the first new try; each further one that brings nothing waits twice as long.
    """
    target = folder / remote.name
    if _is_here(target, remote):
        return target
    reasons: list[str] = []
    with Part(target) as part:
        if _is_here(target, remote):  # by now: another process had the part
            return target
        _check_room(part, remote)
        for url in remote.urls:
            try:
                _download(url, remote, part, tell or (lambda done, total: None), timeout, pause)
                part.keep()
                return target
            except (RefusedError, BrokenError) as error:
                reasons.append(f"{urllib.parse.urlsplit(url).hostname}: {error}")
    raise DownloadError(f"cannot download {remote.name} ({'; '.join(reasons)})")


def _is_here(target: Path, remote: Remote) -> bool:
    if not target.exists():
        return False
    if not matches(target, remote):
        raise RunError(f"{target} is not the published file; move it away first")
    return True


def fetch_any(
    remotes: Sequence[Remote], folder: Path, *, tell: Tell | None = None, timeout: float = 30.0, pause: float = 1.0
) -> Path:
    """The first of several files, each as good as the others, that can be had."""
    failed: list[str] = []
    for remote in sorted(remotes, key=lambda remote: not (folder / remote.name).exists()):
        try:
            return fetch(remote, folder, tell=tell, timeout=timeout, pause=pause)
        except DownloadError as error:
            failed.append(error.what)
    raise DownloadError("; ".join(failed))


def matches(path: Path, remote: Remote) -> bool:
    """Whether a file on the disk is the published one."""
    algorithm, _, digest = remote.digest.partition(":")
    try:
        if remote.size is not None and path.stat().st_size != remote.size:
            return False
        with open(path, "rb") as file:
            return hashlib.file_digest(file, algorithm).hexdigest() == digest
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error


def _download(url: str, remote: Remote, part: Part, tell: Tell, timeout: float, pause: float) -> None:
    """All of the file in `part`, checked."""
    foreign = part.size > 0  # bytes of an earlier call, or of another address
    while True:
        _persevere(url, remote, part, tell, timeout, pause)
        if matches(part.path, remote):
            return
        part.clear()
        if not foreign:
            raise RefusedError(
                f"what it gives is not the published file ({remote.digest.partition(':')[0]} differs)"
            )
        foreign = False


def _persevere(url: str, remote: Remote, part: Part, tell: Tell, timeout: float, pause: float) -> None:
    fruitless, begun = 0, part.size
    while part.size != remote.size:
        before = part.size
        try:
            _receive(url, remote, part, tell, timeout)
            return
        except BrokenError as error:
            fruitless = 0 if part.size - before >= CHUNK else fruitless + 1
            if fruitless > PATIENCE:
                raise
            if part.size <= begun and _is_unreachable(error.__cause__):
                raise  # not reached at all: nothing tells that a wait would help
            time.sleep(pause * 2 ** max(0, fruitless - 1))


def _receive(url: str, remote: Remote, part: Part, tell: Tell, timeout: float) -> None:
    """One request for what is missing."""
    if remote.size is not None and part.size > remote.size:
        part.clear()
    headers = {"User-Agent": "eirehn", "Accept-Encoding": "identity"}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as response:
            total = _total(response, remote, part)
            while chunk := response.read1(CHUNK):
                if part.size + len(chunk) > (LARGEST if total is None else total):
                    part.clear()
                    raise RefusedError("it gives more than the published file has")
                part.write(chunk)
                tell(part.size, total)
    except urllib.error.HTTPError as error:
        with error:
            _judge(error, part)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise RefusedError(f"its certificate cannot be verified: {reason.verify_message}") from error
        raise BrokenError(_said(reason, timeout)) from (reason if isinstance(reason, BaseException) else error)
    if total is not None and part.size < total:
        raise BrokenError(f"the connection broke off after {part.size:,} of {total:,} bytes")


def _total(response: http.client.HTTPResponse, remote: Remote, part: Part) -> int | None:
    """The size the file will have. A server that gives no ranges begins again, and so do we."""
    if response.status != 206:
        part.clear()
    else:
        given = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if given is None or int(given[1]) != part.size:
            part.clear()
            raise BrokenError("it gave another part of the file than was asked for")
    length = response.headers.get("Content-Length", "")
    total = part.size + int(length) if length.isdecimal() else remote.size
    if remote.size is not None and total != remote.size:
        raise RefusedError(f"it has a file of {total:,} bytes, the published one has {remote.size:,}")
    if total is not None and total > LARGEST:
        raise RefusedError(f"it has a file of {total:,} bytes")
    return total


def _judge(error: urllib.error.HTTPError, part: Part) -> None:
    text = f"HTTP {error.code} {error.reason}".strip()
    if error.code == 416 and part.size:
        part.clear()  # it has less than we: ours was of something else
        raise BrokenError(text)
    raise BrokenError(text) if error.code in (408, 425, 429) or error.code >= 500 else RefusedError(text)


def _is_unreachable(cause: BaseException | None) -> bool:
    return isinstance(cause, socket.gaierror | ConnectionRefusedError) or (
        isinstance(cause, OSError) and cause.strerror in ("Network is unreachable", "No route to host")
    )


def _said(reason: BaseException | str, timeout: float) -> str:
    if isinstance(reason, TimeoutError):
        return f"timed out: nothing came for {timeout:g} s"
    if isinstance(reason, socket.gaierror):
        return "no network, or no such host"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__


def _check_room(part: Part, remote: Remote) -> None:
    needed = (remote.size or 0) - part.size
    free = shutil.disk_usage(part.path.parent).free
    if needed > free:
        raise RunError(f"cannot write {part.path}: {needed:,} bytes are needed, the disk has {free:,} left")
