"""The tree of the library: which package may import which, and that nothing points back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "eirehn"

BELOW = {"_internal"}
MAY_IMPORT = {
    "_internal": set(),
    "cells": BELOW,
    "ops": BELOW | {"cells"},
    "layers": BELOW | {"cells", "ops"},
    "data": BELOW,
    "models": BELOW | {"cells", "layers", "data"},
    "report": BELOW,
    "training": BELOW | {"cells", "ops", "data", "models"},
    "recipes": BELOW | {"data", "models", "training"},
    "experiments": BELOW | {"data", "models", "training", "recipes", "report"},
    "sklearn": BELOW | {"data", "models", "training"},
    "cli": BELOW | {"ops", "data", "models", "training", "recipes", "experiments", "report"},
    "__init__": {"_internal", "cells", "ops", "layers", "models"},
    "__main__": {"cli"},
}


def module_name(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts


def imports(path: Path) -> set[tuple[str, ...]]:
    """The modules of ours that a file imports, wherever in it, as far as they are named."""
    package = path.relative_to(SOURCE).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            target = (*base, *(node.module or "").split(".")) if node.module else base
            found |= {(*target, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "eirehn":
            found |= {(*node.module.split(".")[1:], alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {tuple(each.name.split(".")[1:]) for each in node.names if each.name.startswith("eirehn.")}
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    own = module_name(path)[0]
    wrong = {
        ".".join(target)
        for target in imports(path)
        if target != ("__version__",) and target[0] != own and target[0] not in MAY_IMPORT[own]
    }
    assert not wrong, f"eirehn.{own} may import {sorted(MAY_IMPORT[own])}"


def test_the_packages_have_an_order() -> None:
    """What each may import, taken together, has no circle."""
    left = dict(MAY_IMPORT)
    while left:
        free = [name for name, below in left.items() if not below & set(left)]
        assert free, f"in a circle: {sorted(left)}"
        for name in free:
            del left[name]


UNIX_ONLY = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}


def test_nothing_that_only_unix_has_is_imported_with_a_module() -> None:
    """Inside functions they may be, where another system takes another way."""
    wrong = {}
    for path in FILES:
        names: set[str] = set()
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Import):
                names |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
        if names & UNIX_ONLY:
            wrong[path.name] = names & UNIX_ONLY
    assert not wrong
