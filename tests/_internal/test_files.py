"""Files appear whole or not at all."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from eirehn._internal.files import RunError, read_json, write_json, write_text


def test_what_is_written_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: (synced.append(os.fstat(descriptor).st_size), real(descriptor))
    )
    write_text(tmp_path / "file", "twelve bytes")
    assert synced[0] == 12  # all of it, before it takes its place


def test_no_room_for_a_file(tmp_path: Path) -> None:
    """What was there stays, and nothing else is left lying about."""
    path = tmp_path / "file.json"
    write_json(path, {"old": True})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(RunError, match=r"cannot write .*file.json: File too large"):
            write_text(path, "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert read_json(path) == {"old": True}
    assert os.listdir(tmp_path) == ["file.json"]
