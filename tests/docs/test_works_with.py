"""The page docs/works-with.md: each test that it names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "works-with.md").read_text("utf-8"))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_the_test_is_there(path, name):
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_row_names_one():
    table = (ROOT / "docs" / "works-with.md").read_text("utf-8").split("## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    assert all("`tests/" in row for row in rows if "tested by" not in row)
