"""Zip files from elsewhere, read in place: nothing is unpacked, and one that means harm is not read at all."""

from __future__ import annotations

import os
import re
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..files import RunError

MOST_MEMBERS = 10_000
LARGEST_TOTAL = 1 << 30
"""Bytes of all members together, as an archive declares them and as they are read."""
CHUNK = 1 << 20


@contextmanager
def opened_zip(file: Path | IO[bytes], name: str) -> Iterator[zipfile.ZipFile]:
    """A zip file whose list of members is harmless; what goes wrong while it is read is told in `name`'s name."""
    try:
        with zipfile.ZipFile(file) as archive:
            check_members(archive.infolist(), name)
            yield archive
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError) as error:
        raise RunError(f"{name} is damaged or no zip file: {error}") from error
    except OSError as error:
        raise RunError(f"cannot read {name}: {error.strerror or error}") from error


def check_members(members: list[zipfile.ZipInfo], name: str) -> None:
    if len(members) > MOST_MEMBERS:
        raise RunError(f"{name} is refused: it has {len(members):,} members")
    if (total := sum(member.file_size for member in members)) > LARGEST_TOTAL:
        raise RunError(f"{name} is refused: it would unpack to {total:,} bytes")
    often, times = Counter(member.filename for member in members).most_common(1)[0] if members else ("", 0)
    if times > 1:
        raise RunError(f"{name} is refused: it has {times} members called {often!r}")
    for member in members:
        if reason := _harm(member):
            raise RunError(f"{name} is refused: {member.orig_filename!r} {reason}")


def _harm(member: zipfile.ZipInfo) -> str | None:
    if escapes(member.orig_filename):
        return "leads out of the archive"
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or no plain file"
    if member.flag_bits & 1:
        return "is encrypted"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in a way that such archives are not"
    return None


def escapes(path: str) -> bool:
    """Whether a member's name means a place outside the folder it is unpacked to, on any system."""
    parts = re.split(r"[/\\]", path)
    return "\0" in path or not parts[0] or ".." in parts or re.match(r"[A-Za-z]:", path) is not None


def read_member(archive: zipfile.ZipFile, member: str, name: str, at_most: int) -> bytes:
    """All of a member, which is not believed when it says how large it is."""
    with archive.open(member) as file:
        content = file.read(at_most + 1)
    if len(content) > at_most:
        raise RunError(f"{name} is refused: {member!r} has more than {at_most:,} bytes")
    return content


def copy_member(archive: zipfile.ZipFile, member: str, name: str, to: IO[bytes], at_most: int) -> None:
    copied = 0
    with archive.open(member) as file:
        while chunk := file.read(CHUNK):
            copied += len(chunk)
            if copied > at_most:
                raise RunError(f"{name} is refused: {member!r} has more than {at_most:,} bytes")
            to.write(chunk)
    to.seek(0, os.SEEK_SET)
