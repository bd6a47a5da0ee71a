"""What is slow to compute and small to keep: JSON files in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .files import RunError, write_text


def cache_dir() -> Path:
    """`EIREHN_CACHE_DIR`, or `eirehn` where this platform keeps caches."""
    chosen = os.environ.get("EIREHN_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        parent = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        parent = Path.home() / "Library" / "Caches"
    else:
        parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(parent) / "eirehn"


def cached_json(name: str, key: dict[str, Any], compute: Callable[[], Any], valid: Callable[[Any], bool]) -> Any:
    """`compute()`, or what an earlier call with this key kept of it and `valid` accepts.

    A cache that cannot be read is computed anew; one that cannot be written is no error.
    """
    text = json.dumps(key, sort_keys=True)
    file = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # Path.home() may not know a home
        path = cache_dir() / file
        kept = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(kept, dict) and kept.get("key") == json.loads(text) and valid(kept.get("value")):
            return kept["value"]
    value = compute()
    with contextlib.suppress(RunError, RuntimeError):
        write_text(cache_dir() / file, json.dumps({"key": key, "value": value}))
    return value
