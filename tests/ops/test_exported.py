"""Exported programs: any number of time steps, in any process, by the backend of the place where they run."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.exported import SIZES, All
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn.utils.rnn import pack_sequence
from torch.utils._pytree import tree_leaves

import eirehn
from eirehn.layers import RecurrentLayer

# torch's own RNN, GRU and LSTM give it, too.
pytestmark = pytest.mark.filterwarnings("ignore:The tensor attribute")


@pytest.fixture(autouse=True, scope="module")
def _as_users_run_it():
    with eirehn.use_backend("auto"):
        yield


def exported(model: nn.Module, steps: int = 7) -> ExportedProgram:
    shapes = ({0: Dim("batch"), 1: Dim("time")},)
    return torch.export.export(model.eval(), (torch.zeros(3, steps, 2),), dynamic_shapes=shapes)


@pytest.fixture(scope="module")
def every() -> tuple[All, Any]:
    model = All()
    return model, exported(model).module()


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_every_system_with_other_sizes_than_exported(size: tuple[int, int], every: tuple[All, Any]) -> None:
    model, program = every
    x = torch.randn(*size, 2)
    with torch.no_grad(), eirehn.use_backend("reference"):
        expected = model(x)
    with torch.no_grad():
        found = program(x)
    torch.testing.assert_close(tree_leaves(found), tree_leaves(expected), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_new_process_loads_it_and_chooses_the_backend(tmp_path: Path) -> None:
    model = eirehn.EIREHN(2, 3, batch_first=True)
    torch.export.save(exported(model), tmp_path / "layer.pt2")
    x = torch.randn(4, 9, 2)
    torch.save((x, model(x)), tmp_path / "expected.pt")
    code = """
import eirehn, sys
assert "torch" not in sys.modules
import torch
assert not {"numba", "triton"} & set(sys.modules)
layer = torch.export.load("layer.pt2").module()
x, expected = torch.load("expected.pt")
torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-6)
assert "numba" in sys.modules
with eirehn.use_backend("triton"):
    try:
        layer(x)
    except ValueError as error:
        print(error)
"""
    settings = {**os.environ, "TRITON_INTERPRET": "0", "EIREHN_BACKEND": "auto"}
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert ended.stdout == "backend 'triton' cannot run this EIREHNCell: the weights are on cpu\n", ended.stderr


def test_what_cannot_be_exported_is_refused() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = eirehn.SREHN(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(pack_sequence([x[0], x[1]]))[0].data

    class Costly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = eirehn.ACT(2, 3, batch_first=True, max_depth=2, cell="RNN")

        def forward(self, x: Tensor) -> Any:
            return self.layer(x, return_cost=True)

    class Own(eirehn.SREHNCell):
        pass

    with pytest.raises(ValueError, match=r"takes sequences of one length, \(B, T, X\), not lengths or a Packed"):
        torch.export.export(Packed(), (torch.zeros(3, 7, 2),))
    with pytest.raises(
        ValueError, match="the loop over time of this ACTCell, so its number of time steps cannot be"
    ):
        exported(Costly())
    with pytest.raises(ValueError, match="of this Own,"):
        exported(RecurrentLayer(Own, 2, 3, batch_first=True))
    with eirehn.use_backend("reference"), pytest.raises(ValueError, match="of this SREHNCell,"):
        exported(eirehn.SREHN(2, 3, batch_first=True))
    x = torch.randn(3, 4, 2)
    for model in (Costly(), RecurrentLayer(partial(Own, max_depth=2), 2, 3, batch_first=True)):  # it is unrolled
        program = torch.export.export(model.eval(), (x,))
        assert not [node for node in program.graph.nodes if "eirehn" in str(node.target)]
        torch.testing.assert_close(program.module()(x), model(x), rtol=0, atol=1e-6)


def test_the_cost_of_an_elastic_gate() -> None:
    class Costly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = eirehn.EIREHN(2, 3, batch_first=True, bidirectional=True)

        def forward(self, x: Tensor) -> Any:
            return self.layer(x, return_cost=True)

    model, x = Costly(), torch.randn(1, 12, 2)
    torch.testing.assert_close(exported(model).module()(x), model(x), rtol=0, atol=1e-6)
