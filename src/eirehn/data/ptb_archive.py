"""Files of known sizes out of a folder or a tar archive from elsewhere, of which nothing is unpacked."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from ..files import RunError
from .archive import LARGEST_TOTAL, MOST_MEMBERS, escapes

PLACES = (".", "data", "simple-examples/data")


def members(source: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The content of each file, by its name; all must be there in the size they should have."""
    if source.is_dir():
        found = _in_folder(source, sizes)
    elif source.exists():
        found = _in_tar(source, sizes)
    else:
        raise RunError(f"cannot read {source}: there is no such file or folder")
    if missing := [name for name in sizes if name not in found]:
        raise RunError(f"{source} has no {missing[0]}")
    return found


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
    try:
        with tarfile.open(source, "r|*") as archive:
            return _read(archive, source, sizes)
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        raise RunError(f"{source} is damaged or no tar archive: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise RunError(f"cannot read {source}: {error.strerror or error}") from error


def _read(archive: tarfile.TarFile, source: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    total = 0
    for count, member in enumerate(archive, 1):
        total += member.size
        if count > MOST_MEMBERS or total > LARGEST_TOTAL:
            raise RunError(f"{source} is refused: it has too many or too large members")
        if escapes(member.name):
            raise RunError(f"{source} is refused: {member.name!r} leads out of the archive")
        path = Path(member.name)
        if path.name not in sizes or path.parent.name != "data":
            continue
        if not member.isreg() or member.size != sizes[path.name] or path.name in found:
            raise RunError(f"{source} is refused: {member.name!r} is not the published file")
        file = archive.extractfile(member)
        assert file is not None
        found[path.name] = file.read()
    return found
