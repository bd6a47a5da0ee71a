"""Imports that follow the import of another library."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from eirehn._internal.imports import import_after


def test_our_module_follows_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("library_of_others", "own_of_ours", "own_of_theirs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "library_of_others.py").write_text(
        "import sys\nassert 'own_of_ours' not in sys.modules\nready = 1\n"
    )
    (tmp_path / "own_of_ours.py").write_text("from library_of_others import ready\n")
    (tmp_path / "own_of_theirs.py").write_text("")
    finders = len(sys.meta_path)
    import_after("library_of_others", "own_of_ours")
    assert importlib.util.find_spec("library_of_others") is not None
    assert "own_of_ours" not in sys.modules
    importlib.import_module("library_of_others")
    assert sys.modules["own_of_ours"].ready == 1
    assert len(sys.meta_path) == finders
    import_after("library_of_others", "own_of_theirs")
    assert "own_of_theirs" in sys.modules
    with pytest.warns(
        UserWarning, match="^own_of_nobody does not fit this version of library_of_others: No module"
    ):
        import_after("library_of_others", "own_of_nobody")


@pytest.mark.parametrize("first", ["from eirehn.cells import EIREHNCell", "from eirehn import UnstableTraining"])
def test_the_operator_is_registered_whatever_is_imported_first(first: str) -> None:
    code = f"{first}; import torch; torch.ops.eirehn.scan"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True)
