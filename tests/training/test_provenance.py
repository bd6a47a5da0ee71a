"""What a result says of the code and the machine it comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from eirehn.training.provenance import provenance


def test_where_figures_come_from() -> None:
    about = provenance()
    assert "cores of" in about["machine"]
    assert {"python", "torch", "eirehn"} <= set(about["versions"])


def test_the_commit_is_ours() -> None:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("not in a checkout")
    asked = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert provenance()["commit"].startswith(asked.stdout.strip())
