"""The weights of the recurrences and the arguments of a call, in the form that all backends take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..cells import EIREHNCell, RecurrentCell, RHNCell, SREHNCell
from ..cells.base import Constants

Array = TypeVar("Array")


class Weights(NamedTuple, Generic[Array]):
    """The weights of a recurrence, or their gradients: tensors, or arrays for the CPU kernels.

    The kernels take a leading axis E, the members of an ensemble (1 for one model); without it, it is one model.
    A system that lacks a weight has None: without `W_ah` the depth is fixed, without `z1` there is not a
    hypernetwork, without `P_bar` its update has no gate.
    """

    W_h: Array  # (E, 2H, H), or (E, depth, 2H, H) for own weights at every inner step
    b: Array  # (E, 2H), or (E, depth, 2H)
    W_ah: Array | None = None  # (E, H, H)
    alpha: Array | None = None  # (E, H), after its softplus; in float32 at least
    beta: Array | None = None  # (E, H), after its sigmoid; in float32 at least
    z1: Array | None = None  # (E, Z)
    W_zs: Array | None = None  # (E, Z, 2H)
    W_z: Array | None = None  # (E, Z, Z)
    b_z: Array | None = None  # (E, Z)
    P: Array | None = None  # (E, 2H, Z)
    P_bar: Array | None = None  # (E, 2H, Z)
    b_bar: Array | None = None  # (E, 2H)


class Arguments(NamedTuple):
    """The arguments of `eirehn::recurrence`, with the shapes that operator.py gives."""

    u: Tensor
    h0: Tensor
    mask: Tensor | None
    weights: Weights[Tensor]
    batch_sizes: Sequence[int]
    kind: str
    max_depth: int
    reverse: bool
    backend: str = "reference"


def weights_of(cell: RecurrentCell, constants: Constants) -> Weights[Tensor]:
    """The weights of the recurrence of `cell`; its input is projected before."""
    if isinstance(cell, RHNCell):
        return Weights(cell.W_h, cell.b)
    assert isinstance(cell, SREHNCell)
    weights: Weights[Tensor] = Weights(cell.W_h, cell.b, cell.W_ah, constants.alpha, constants.beta)
    if constants.z is None:
        return weights
    assert isinstance(cell, EIREHNCell)
    gated = "P_bar" in cell.parameter_names
    return weights._replace(
        z1=constants.z,
        W_zs=torch.cat([cell.W_zh, cell.W_zg], -1),
        W_z=cell.W_z,
        b_z=cell.b_z,
        P=cell.P,
        P_bar=cell.P_bar if gated else None,
        b_bar=cell.b_bar if gated else None,
    )


def halved(weights: Weights[Tensor]) -> Weights[Tensor]:
    """All but those of the elastic gate in bfloat16, for products on tensor cores."""
    given = {name: each for name, each in weights._asdict().items() if each is not None}
    return weights._replace(
        **{name: each.bfloat16() for name, each in given.items() if name not in ("alpha", "beta")}
    )
