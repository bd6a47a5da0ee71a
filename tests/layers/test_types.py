"""The types of what layers and cells return, checked by mypy (see `files` in pyproject.toml) and at run time."""

from typing import Any, assert_type

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from eirehn import ACT, EIREHN, LSTM, RHN, ACTCell, EIREHNCell

X = torch.randn(5, 3, 2)


def test_layers() -> None:
    layer = EIREHN(2, 4)
    assert_type(layer(X), tuple[Tensor, Tensor])
    assert_type(layer(X, max_depth=2, return_depth=True), tuple[Tensor, Tensor, Tensor])
    assert_type(layer(X, return_cost=True), tuple[Tensor, Tensor, Tensor])
    reset = torch.zeros(5, 3, dtype=torch.bool)
    assert_type(layer(X, None, reset=reset, return_depth=True), tuple[Tensor, Tensor, Tensor])
    assert_type(LSTM(2, 4)(X, reset=reset)[0], Tensor)
    assert_type(layer(X, return_depth=True, return_cost=True), tuple[Tensor, Tensor, Tensor, Tensor])
    assert_type(RHN(2, 4).forward(X), tuple[Tensor, Tensor])
    asked = bool(torch.ones(()))
    assert_type(layer(X, return_depth=asked), tuple[Any, ...])


def test_depth_is_before_the_cost() -> None:
    _, _, depth, cost = EIREHN(2, 4)(X, return_depth=True, return_cost=True)
    assert (depth.dtype, cost.dtype) == (torch.int64, torch.float32)
    _, cell_depth, cell_cost = EIREHNCell(2, 4)(X[0], return_depth=True, return_cost=True)
    assert (cell_depth.dtype, cell_cost.dtype) == (torch.int64, torch.float32)


def test_packed_sequences_come_out_packed() -> None:
    packed = pack_sequence([X[:, 0], X[:2, 1]])
    out, _, depth = EIREHN(2, 4)(packed, return_depth=True)
    assert_type(out, PackedSequence)
    assert_type(depth, Tensor)
    assert isinstance(out, PackedSequence)
    assert_type(LSTM(2, 4)(packed)[0], PackedSequence)


def test_cells() -> None:
    cell = EIREHNCell(2, 4)
    assert_type(cell(X[0]), Tensor)
    assert_type(cell(X[0], return_depth=True), tuple[Tensor, Tensor])
    assert_type(cell(X[0], return_cost=True), tuple[Tensor, Tensor])
    assert_type(cell(X[0], return_depth=True, return_cost=True), tuple[Tensor, Tensor, Tensor])


def test_states_of_act_depend_on_its_cell() -> None:
    assert_type(ACT(2, 4)(X), Any)
    assert_type(ACTCell(2, 4)(X[0]), Any)
