"""The tutorials run, in a reduced size, and stand in the repository with their outputs."""

import ast
import json
import runpy
from pathlib import Path

import pytest

from eirehn.data.download import data_dir

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST = 400_000  # bytes
REDUCED = {
    "classify-activities": ("har", "WINDOWS, EPOCHS = 60, 1"),
    "replace-lstm": (None, "SEQUENCES, EPOCHS, SEEDS = 100, 2, (0,)"),
    "words-by-depth": ("ptb", "TOKENS, EPOCHS, SCORED = 2000, 1, 1000"),
}
"""The data that a tutorial needs, and its parameters in this test."""
AGAIN = "run it again: `make tutorials`"


@pytest.mark.slow
@pytest.mark.parametrize("name", REDUCED)
def test_runs_from_top_to_bottom(name, monkeypatch):
    needed, parameters = REDUCED[name]
    if needed and not (data_dir() / needed).is_dir():
        pytest.skip(f"the data of `eirehn data {needed}` are not here: set EIREHN_DATA_DIR")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the tests run side by side
    executed = runpy.run_path(str(FOLDER / "execute.py"))["executed"]
    notebook = executed(FOLDER / f"{name}.ipynb", parameters)
    assert without_output(notebook.cells) == []


def test_each_is_run_in_the_tests():
    assert [path.stem for path in NOTEBOOKS] == sorted(REDUCED)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_with_its_outputs(path):
    assert path.stat().st_size <= MOST
    notebook = json.loads(path.read_text("utf-8"))
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in code]
    assert counts == list(range(1, len(code) + 1)), AGAIN
    assert without_output(code) == [], AGAIN
    outputs = [output for cell in code for output in cell["outputs"]]
    assert sum(bool({"image/png", "text/html"} & set(output.get("data", ()))) for output in outputs) >= 2
    for output in outputs:
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", output["text"]
        content = json.dumps({**output, "data": {**output.get("data", {}), "image/png": ""}})
        for place in ("/work", "/root", "/home", "/tmp"):
            assert place not in content


def without_output(cells):
    """The cells that print or draw, and have no output."""
    silent = [cell for cell in cells if cell["cell_type"] == "code" and not cell["outputs"]]
    return [cell["id"] for cell in silent if shows(cell["source"])]


def shows(source):
    """Whether a cell calls `print` or `show` itself, not in a function that it only defines."""
    tree = ast.parse("".join(source))
    statements = [each for each in tree.body if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
    calls = [node.func for each in statements for node in ast.walk(each) if isinstance(node, ast.Call)]
    return bool({"print", "show"} & {getattr(call, "id", getattr(call, "attr", None)) for call in calls})
