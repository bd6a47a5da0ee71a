"""The paper's own figures, to stand beside ours."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def published() -> dict[str, Any]:
    """Tables 1 to 4 and the ablation, as `published.json` beside this file holds them."""
    tables: dict[str, Any] = json.loads(files(__package__).joinpath("published.json").read_text("utf-8"))
    return tables
