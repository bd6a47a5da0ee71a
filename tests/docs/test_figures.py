import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "figures"


@pytest.fixture
def drawings(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    scripts = {"figure2": "inner_step.py", "figure3": "language_model.py"}
    return {name: runpy.run_path(str(FOLDER / script))[name] for name, script in scripts.items()}


@pytest.mark.parametrize("name", ["figure2", "figure3"])
def test_drawings_are_whole_and_their_texts_apart(drawings, name, tmp_path):
    figure = drawings[name]()
    figure.savefig(tmp_path / "drawing.svg")
    figure.canvas.draw()
    (ax,) = figure.axes
    extents = [(text.get_text(), text.get_window_extent()) for text in ax.texts if text.get_text()]
    assert len(extents) > 20
    width, height = figure.bbox.width, figure.bbox.height
    for index, (name, one) in enumerate(extents):
        assert 0 <= one.x0 < one.x1 <= width, name
        assert 0 <= one.y0 < one.y1 <= height, name
        for other, two in extents[index + 1 :]:
            assert not (one.x0 < two.x1 and two.x0 < one.x1 and one.y0 < two.y1 and two.y0 < one.y1), (name, other)


def test_figure2_has_every_quantity_of_an_inner_step(drawings):
    texts = " ".join(text.get_text() for text in drawings["figure2"]().axes[0].texts)
    for formula in (
        r"z^r=\tanh(W_{zh}\,s^{r-1}+W_{zg}\,\hat g^{r-1}+W_z\,z^{r-1}+b_z)",
        r"w^r=P\,z^r",
        r"\bar g^r=\mathrm{sigm}(\bar P\,z^r+\bar b)",
        r"d^r=\max(\beta+e^{\alpha}-e^{(\alpha+\alpha_t)r},\,0)",
        r"h^r=g^r s^r+(1-g^r)\,h^{r-1}",
        r"\alpha_t=\mathrm{sigm}(W_a\,[h_{t-1};x_t;1])",
    ):
        assert formula in texts


def test_figure3_takes_no_more_steps_than_it_says(drawings):
    texts = [text.get_text() for text in drawings["figure3"]().axes[0].texts]
    depths = [int(text.split()[0]) for text in texts if text.endswith("of at most 4")]
    numbers = [int(text) for text in texts if text.isdecimal()]
    assert numbers == [step for depth in depths for step in range(1, depth + 1)]


@pytest.mark.slow
def test_both_are_written(tmp_path):
    command = [sys.executable, FOLDER / "draw.py", "--out", tmp_path / "new"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("inner-step.svg", "language-model.svg"):
        assert (tmp_path / "new" / name).stat().st_size > 10_000
