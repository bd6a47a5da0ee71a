"""What a result says of the code and the machine it comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from eirehn.training.provenance import provenance


def test_provenance() -> None:
    about, root = provenance(), Path(__file__).parents[2]
    assert "cores of" in about["machine"]
    assert {"python", "torch", "eirehn"} <= set(about["versions"])
    if not (root / ".git").exists():
        pytest.skip("not in a checkout")
    asked = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert about["commit"].startswith(asked.stdout.strip())
