"""The Python code on the pages of the documentation that a user copies from, run from top to bottom."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import eirehn

PAGES = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def sequences():
    """Of two classes, which differ in their spread."""
    pytest.importorskip("sklearn")
    generator = np.random.default_rng(0)
    labels = np.array(["calm", "busy"] * 12)
    spread = np.where(labels == "calm", 0.2, 1.0)[:, None, None]
    return (generator.normal(size=(24, 20, 3)) * spread).astype(np.float32), labels


@pytest.fixture
def run(sequences, tmp_path, monkeypatch):
    """The folder `runs/classify` below the current one."""
    from eirehn.recipes import find
    from eirehn.training.trainer import train

    monkeypatch.chdir(tmp_path)
    np.savez("my.npz", X=sequences[0], y=sequences[1])
    recipe = find("classify")
    train(
        replace(
            recipe,
            network=replace(recipe.network, hidden_size=8),
            data=replace(recipe.data, path=str(tmp_path / "my.npz")),
            optimisation=replace(recipe.optimisation, epochs=1),
            hardware=replace(recipe.hardware, accelerator="cpu"),
            seeds=(0,),
        ),
        "runs/classify",
    )


@pytest.mark.slow
@pytest.mark.usefixtures("run")
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's inductor on itself
@pytest.mark.filterwarnings("ignore:`isinstance.treespec:FutureWarning")  # torch's ONNX exporter on itself
@pytest.mark.parametrize(
    ("page", "heading", "count"),
    [("deploying", "# Deploying", 16), ("training", "## Sweeps", 2), ("api/layers", "## Episodes", 1)],
)
def test_the_code_below_a_heading(page, heading, count, sequences):
    pytest.importorskip("optuna")
    pytest.importorskip("huggingface_hub")
    path = PAGES / f"{page}.md"
    text = path.read_text("utf-8")
    begin = text.index(f"{heading}\n")
    level = heading.split()[0]
    end = f"{text}\n{level} ".find(f"\n{level} ", begin) if level != "#" else len(text)
    blocks = list(BLOCK.finditer(text, begin, end))
    assert len(blocks) == count
    names = dict(zip("Xy", sequences, strict=True))
    with eirehn.use_backend("auto"):  # what users get
        for block in blocks:
            above = text[: block.start(1)].count("\n")  # so that an error names the line of the page
            exec(compile("\n" * above + block[1], str(path), "exec"), names)


def test_the_results_of_the_models_of_the_package():
    page = (PAGES / "deploying.md").read_text("utf-8")
    accuracy, error = (eirehn.load(name).results["value"] for name in ("har-best", "synthetic-best"))
    assert f"| accuracy {100 * accuracy:.2f} % |" in page
    assert f"| MSE {error:.3g} |" in page
