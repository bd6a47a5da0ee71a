"""`torch.onnx.export` of every system, run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.exported import SIZES, All
from torch import nn
from torch.utils._pytree import tree_leaves

import eirehn

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
# What torch's exporter says of itself.
pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


@pytest.fixture(autouse=True, scope="module")
def _as_users_run_it():
    with eirehn.use_backend("auto"):
        yield


def written(model: nn.Module, path: Path, **options: Any) -> Path:
    example = torch.zeros(2, 3, 2, dtype=next(model.parameters()).dtype)
    shapes = ({0: "batch", 1: "time"},)
    torch.onnx.export(model.eval(), (example,), path, dynamo=True, dynamic_shapes=shapes, verbose=False, **options)
    return path


def outputs(session: Any, x: torch.Tensor) -> list[Any]:
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> tuple[All, Any]:
    model = All()
    with pytest.warns():  # of torch's own
        path = written(model, tmp_path_factory.mktemp("onnx") / "all.onnx")
    return model, onnxruntime.InferenceSession(path)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_every_system_with_other_sizes_than_exported(size: tuple[int, int], every: tuple[All, Any]) -> None:
    model, session = every
    x = torch.randn(*size, 2)
    with torch.no_grad(), eirehn.use_backend("reference"):
        expected = model(x)
        assert size != SIZES[-1] or all(len(each) > 2 for each in model.depths(x).values())
    for found, exact in zip(outputs(session, x), tree_leaves(expected), strict=True):
        torch.testing.assert_close(torch.from_numpy(found), exact, rtol=0, atol=1e-5)


class Outputs(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def test_inner_steps_stop_where_no_gate_is_open(tmp_path: Path) -> None:
    """A file whose loop would change the state gives the same outputs for a network that takes one inner step."""
    layer = eirehn.EIREHN(2, 3, batch_first=True, max_depth=6, dtype=torch.float64)
    layer.reset_parameters(alpha=0.66 / 0.5, decay_bias=-20.0, decay_scale=0.0)
    path = written(Outputs(layer), tmp_path / "layer.onnx")
    model = onnx.load(path)
    assert [node.op_type for node in model.graph.node].count("Scan") == 1
    (scan,) = (node for node in model.graph.node if node.op_type == "Scan")
    body = next(each.g for each in scan.attribute if each.name == "body")
    (loop,) = (node for node in body.node if node.op_type == "Loop")
    inside = next(each.g for each in loop.attribute if each.name == "body")
    assert len(inside.node) < 40  # not unrolled
    x = torch.randn(4, 12, 2, dtype=torch.float64)
    with torch.no_grad():
        expected, _, depth = layer(x, return_depth=True)
    assert depth.eq(1).all()
    state = inside.output[1]  # after the condition; doubled at every turn of the loop
    inside.node.append(onnx.helper.make_node("Add", [state.name, state.name], ["twice"]))
    state.name = "twice"
    (found,) = outputs(onnxruntime.InferenceSession(model.SerializeToString()), x)
    np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-12)


def test_a_sequence_of_nan_leaves_the_others_alone(tmp_path: Path) -> None:
    layer = eirehn.SREHN(2, 3, batch_first=True, max_depth=6)
    session = onnxruntime.InferenceSession(written(Outputs(layer), tmp_path / "layer.onnx"))
    x = torch.randn(3, 12, 2)
    x[1, 4] = torch.nan
    with torch.no_grad():
        expected = layer(x)[0]
    torch.testing.assert_close(
        torch.from_numpy(outputs(session, x)[0]), expected, rtol=0, atol=1e-5, equal_nan=True
    )
    assert expected[1, 4:].isnan().all()


def test_gates_that_close_at_once_or_never(tmp_path: Path) -> None:
    """Global decays from 1e-4 to 4."""
    layer = eirehn.SREHN(2, 8, batch_first=True, max_depth=6)
    with torch.no_grad():
        layer.cells[0].alpha_hat.copy_(torch.tensor([-9.0, -6.0, -4.0, -2.0, -1.0, 0.0, 2.0, 4.0]))
        layer.cells[0].b_a.copy_(torch.tensor([-9.0, -4.0, -2.0, -2.0, -2.0, -3.0, -3.0, -5.0]))
    session = onnxruntime.InferenceSession(written(Outputs(layer), tmp_path / "layer.onnx"))
    x = torch.randn(3, 12, 2)
    with torch.no_grad():
        expected = layer.double()(x.double())[0].float()
    torch.testing.assert_close(torch.from_numpy(outputs(session, x)[0]), expected, rtol=0, atol=1e-5)


def test_half_precision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(torch.onnx.OnnxExporterError) as caught:
        written(Outputs(eirehn.SREHN(2, 3, dtype=torch.bfloat16, batch_first=True)), tmp_path / "layer.onnx")
    assert "takes float32 and float64 weights" in str(caught.getrepr(chain=True))
