"""Large texts as numbers on disk: read once, kept in the user's cache folder, mapped from there as they are used.

Their numbers are named by the checksum of the text and by all else they depend on, so that another text, or the
same by another vocabulary, is never taken for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..cache import cache_dir
from ..files import RunError, lock
from .text import Stored, encode_to, mapped, stored_type, vocabulary_of
from .vocabulary import Vocabulary

LARGE = 16 << 20
"""Bytes of a text whose numbers are no longer kept in memory."""
PATIENCE = 300.0  # seconds; not every file system has locks
FORM = 1  # counts up with what is made of a text

State = tuple[int, int]
T = TypeVar("T")


def is_large(path: Path) -> bool:
    return state(path)[0] > LARGE


def state(path: Path) -> State:
    """What tells whether a file has changed since it was read."""
    try:
        found = path.stat()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    if stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode):
        raise RunError(f"{path} is a pipe: a text is read more than once, so it must be a file")
    return found.st_size, found.st_mtime_ns


def checksum(path: Path) -> bytes:
    """SHA-256 of a file that may be large: not computed again while the file stays as it is."""
    return _checksum(path.absolute(), state(path))


@lru_cache(maxsize=32)
def _checksum(path: Path, state: State) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error


def is_known(path: Path, level: str, most: int | None, encoding: str) -> bool:
    """Whether a large text has been read before, or else will take its time."""
    return _place(path, "vocabulary", "json", [level, most, encoding]).exists()


def stored_vocabulary(path: Path, level: str, most: int | None, encoding: str) -> Vocabulary:
    """As `vocabulary_of`, or what an earlier call has kept of it."""

    def make(out: Path) -> None:
        vocabulary_of(path, level, most=most, encoding=encoding).save(out)

    return _kept(path, "vocabulary", "json", [level, most, encoding], Vocabulary.load, make)


def stored_text(path: Path, vocabulary: Vocabulary, encoding: str) -> Stored:
    """The numbers of a text, (N,), in a file."""
    words = hashlib.sha256("\0".join((vocabulary.level, *vocabulary.tokens)).encode("utf-8", "surrogatepass"))

    def read(kept: Path) -> Stored:
        found = mapped(kept)
        if found.ndim != 1 or found.dtype != np.dtype(stored_type(vocabulary)):
            raise ValueError(f"{kept} holds something else")
        return found

    return _kept(
        path,
        "text",
        "npy",
        [words.hexdigest(), encoding],
        read,
        lambda out: encode_to(path, vocabulary, out, encoding=encoding),
    )


def _kept(
    path: Path,
    kind: str,
    suffix: str,
    depends_on: list[Any],
    read: Callable[[Path], T],
    make: Callable[[Path], object],
) -> T:
    """What was kept of the text, or what `make` now keeps in the file it is given."""
    before = state(path)
    kept = _place(path, kind, suffix, depends_on)
    damaged = (OSError, ValueError, EOFError, RunError)
    with suppress(*damaged):  # a folder that only others write to will do
        return read(kept)
    with _alone(kept.parent) as alone:  # of several processes that train together one reads the text
        with suppress(*damaged):
            return read(kept)
        for left in kept.parent.glob(f"*{kept.name}.*") if alone else ():  # by a process that was killed
            left.unlink(missing_ok=True)
        draft = kept.with_name(f"{kept.name}.{secrets.token_hex(4)}.draft")
        try:
            make(draft)
            if state(path) != before:  # under this name nobody may see it, not for a moment
                raise RunError(f"{path} has changed while it was read")
            os.replace(draft, kept)
        except RunError as error:
            if str(draft) in str(error):
                told = str(error).replace(str(draft), str(kept))
                raise RunError(f"{told} (EIREHN_CACHE_DIR names another folder for it)") from error
            raise
        finally:
            draft.unlink(missing_ok=True)
        return read(kept)


def _place(path: Path, kind: str, suffix: str, depends_on: list[Any]) -> Path:
    key = json.dumps([FORM, checksum(path).hex(), *depends_on]).encode()
    try:
        return cache_dir() / "texts" / f"{kind}-{hashlib.sha256(key).hexdigest()[:32]}.{suffix}"
    except RuntimeError as error:  # there is no home
        raise RunError("there is no folder for what is kept of large texts: EIREHN_CACHE_DIR names one") from error


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether no other process writes to this folder, after some waiting for it: work done twice is no error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / ".lock", "ab") as file:
            until = time.monotonic() + PATIENCE
            while not (held := lock(file)) and time.monotonic() < until:
                time.sleep(0.1)
            yield held
    except OSError as error:
        raise RunError(
            f"cannot write to {folder}: {error.strerror} (EIREHN_CACHE_DIR names another folder)"
        ) from error
