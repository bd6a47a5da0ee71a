"""Where data sets are kept: a folder of each one's own under one for all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..files import RunError


def data_dir() -> Path:
    """`EIREHN_DATA_DIR`, or `eirehn` where this platform keeps the data of programs."""
    chosen = os.environ.get("EIREHN_DATA_DIR")
    if chosen:
        return Path(chosen)
    try:
        if sys.platform == "win32":
            parent = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        elif sys.platform == "darwin":
            parent = Path.home() / "Library" / "Application Support"
        else:
            parent = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise RunError("there is no home folder to keep data in; set EIREHN_DATA_DIR") from error
    return Path(parent) / "eirehn"


def kept(name: str, file: str) -> Path:
    """The path of a data set's file, which must be there."""
    path = data_dir() / name / file
    if not path.is_file():
        raise RunError(f"{path} is not there; get it with `eirehn data {name}`, or set EIREHN_DATA_DIR")
    return path
