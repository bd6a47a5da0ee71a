"""A file that is not all here yet."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from ..files import RunError, lock


class Part:
    """`TARGET.part`: grows at its end, outlives a broken-off download, and belongs to one process at a time.

    Empty, it goes away again, and so do the folders that were made for it.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(target.name + ".part")
        self.size = 0
        self._made: list[Path] = []

    def __enter__(self) -> Part:
        folder = self.path.parent
        self._made = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = open(self.path, "ab", buffering=0)
        except OSError as error:
            self._unmake()
            raise RunError(f"cannot write {self.path}: {error.strerror}") from error
        if not self._is_ours():
            self._file.close()
            raise RunError(f"{self.path} is in use by another process")
        self.size = os.fstat(self._file.fileno()).st_size
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.size == 0:
                self._remove()
        finally:
            self._file.close()
        if self.size == 0:
            self._unmake()

    def write(self, content: bytes) -> None:
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}") from error
        finally:
            self.size = os.fstat(self._file.fileno()).st_size

    def clear(self) -> None:
        self._file.truncate(0)
        self.size = 0

    def keep(self) -> None:
        """Takes its place, ours until it is there: whoever had it in between would write to what was kept."""
        try:
            os.fsync(self._file.fileno())
            try:
                os.replace(self.path, self.target)
            except OSError:  # some systems do not move an open file
                self._file.close()
                os.replace(self.path, self.target)
        except OSError as error:
            raise RunError(f"cannot write {self.target}: {error.strerror}") from error

    def _remove(self) -> None:
        try:
            self.path.unlink()
        except OSError:  # as for a move
            self._file.close()
            with suppress(OSError):
                self.path.unlink()

    def _is_ours(self) -> bool:
        """Locked, and not moved to its place by another process while we waited to open it."""
        self._file.seek(1 << 40)  # where a system locks bytes, not files: one that nobody reads
        try:
            return lock(self._file) and os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path))
        except OSError:
            return False

    def _unmake(self) -> None:
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()
