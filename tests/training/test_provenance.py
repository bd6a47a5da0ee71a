"""What a result says of the code and the machine it comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from eirehn.training.provenance import provenance, without_password


def test_provenance() -> None:
    about, root = provenance(), Path(__file__).parents[2]
    assert "cores of" in about["machine"]
    assert {"python", "torch", "eirehn"} <= set(about["versions"])
    if not (root / ".git").exists():
        pytest.skip("not in a checkout")
    asked = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert about["commit"].startswith(asked.stdout.strip())


def test_passwords_are_not_kept() -> None:
    line = "eirehn tune --storage mysql+x://me:a@b:c@host:3306/db --data https://host/a:b@c.csv"
    assert without_password(line) == line.replace("a@b:c", "***", 1)
