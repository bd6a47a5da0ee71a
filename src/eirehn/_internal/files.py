"""Atomic writing of files, and reading with errors that name the file."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


class RunError(Exception):
    """An error outside the program, such as in a file or folder. The message is one line for a user."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which replaces `path` when it is completely written."""
    if path.exists() and not path.is_file():
        raise RunError(f"cannot write {path}: it is a folder or a device, not a file")
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError):
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def write_text(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


def write_json(path: Path, content: Any) -> None:
    """Writes JSON, with null for NaN and infinity, which JSON does not have."""
    write_text(path, json.dumps(_numbers(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _numbers(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: _numbers(value) for key, value in content.items()}
    return [_numbers(each) for each in content] if isinstance(content, list | tuple) else content


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error


def lock(file: IO[bytes], patience: float = 0.0) -> bool:
    """Whether the file could be locked within `patience` seconds. The lock ends with the file or the process."""
    until = time.monotonic() + patience
    while not (held := _lock(file)) and time.monotonic() < until:
        time.sleep(0.1)
    return held


def _lock(file: IO[bytes]) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]  # Windows only
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # not possible on every system
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
