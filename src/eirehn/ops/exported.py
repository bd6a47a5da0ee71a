"""A cell over whole sequences as one operator of an exported program, `eirehn::scan`.

It takes the parameters of the cell as they are, and the backend is chosen where it runs.

    x           (T, B, X)
    state       (B, S)
    parameters  those of the cell, in its order
    cell        the cell without its parameters, as JSON

It returns `out` (T, B, H), the state after the last step (B, S) and `depth` (T, B) int64.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import torch
from torch import _VF, Tensor

from .._internal.scan_operator import scan
from ..cells import ACTCell, EIREHNCell, RecurrentCell, RHNCell, SREHNCell, SRHNCell
from . import dispatch
from .reference import Scan
from .reference import scan as plain_scan

OPTIONS: dict[type[RecurrentCell], Callable[[Any], dict[str, Any]]] = {
    RHNCell: lambda cell: {"depth": cell.depth},
    SRHNCell: lambda cell: {"depth": cell.depth},
    SREHNCell: lambda cell: {"max_depth": cell.max_depth},
    EIREHNCell: lambda cell: {
        "max_depth": cell.max_depth,
        "hyper_size": cell.hyper_size,
        "weight_update": cell.weight_update,
    },
    ACTCell: lambda cell: {"cell": cell.kind, "max_depth": cell.max_depth, "epsilon": cell.epsilon},
}
"""The cells that can be exported, and the options that they are made with."""
MAKERS = {cell.__name__: cell for cell in OPTIONS}
TORCH: dict[str, Callable[..., Any]] = {"RNN": _VF.rnn_tanh, "GRU": _VF.gru, "LSTM": _VF.lstm}


def exported_scan(
    cell: RecurrentCell,
    x: Tensor,
    state: Tensor,
    *,
    max_depth: int,
    reverse: bool,
    x_mask: Tensor | None,
    h_mask: Tensor | None,
    with_cost: bool,
) -> Scan:
    """As `reference.scan`, by the operator if it can run this, otherwise by a loop over time that is unrolled."""
    sort = type(cell)
    masked = x_mask is not None or h_mask is not None
    pondering = sort is ACTCell and with_cost  # that cost is computed step by step
    if sort not in OPTIONS or masked or pondering or dispatch.chosen_backend() == "reference":
        return _unrolled(cell, x, state, max_depth, reverse, x_mask, h_mask)
    about = {"kind": sort.__name__, "input_size": cell.input_size, "hidden_size": cell.hidden_size}
    # As in the order of `named_parameters`, which a cell with replaced parameters does not have.
    inner = ("cell.weight_ih", "cell.weight_hh", "cell.bias_ih", "cell.bias_hh")
    names = cell.parameter_names or ("w_p", "b_p", *inner)
    out, last, depth = scan(
        x,
        state,
        [attrgetter(name)(cell) for name in names],
        _as_json(about | OPTIONS[sort](cell)),
        max_depth,
        reverse,
    )
    return Scan(out, last, depth, None)


def _as_json(values: dict[str, Any]) -> str:
    """Numbers and plain names as JSON; torch.export cannot trace the module json in strict mode."""
    parts = [
        f'"{name}": "{value}"' if isinstance(value, str) else f'"{name}": {value}' for name, value in values.items()
    ]
    return f"{{{', '.join(parts)}}}"


def _unrolled(cell: RecurrentCell, x: Tensor, state: Tensor, *options: Any) -> Scan:
    steps, batch = x.shape[:2]
    if not isinstance(steps, int):  # a symbol
        raise ValueError(
            f"torch.export unrolls the loop over time of this {type(cell).__name__}, so its number of time steps "
            "cannot be dynamic; it can for a layer of eirehn in evaluation mode, without use_backend('reference'), "
            "and for ACT without return_cost"
        )
    found = plain_scan(cell, x.flatten(0, 1), [batch] * steps, state, *options)
    out, depth = (each.unflatten(0, (steps, batch)) for each in (found.out, found.depth))
    cost = None if found.cost is None else found.cost.unflatten(0, (steps, batch))
    return Scan(out, found.state, depth, cost)


def run(
    x: Tensor, state: Tensor, parameters: Sequence[Tensor], cell: str, max_depth: int, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """What the operator does."""
    with torch.no_grad():
        if json.loads(cell)["kind"] in TORCH:
            return _by_torch(x, state, parameters, json.loads(cell)["kind"], reverse)
        (steps, batch), bound = x.shape[:2], _bound(cell, parameters)
        found = dispatch.scan(bound, x.flatten(0, 1), [batch] * steps, state, max_depth=max_depth, reverse=reverse)
        out, depth = (each.unflatten(0, (steps, batch)).contiguous() for each in (found.out, found.depth))
        return out, found.state.clone(), depth


@lru_cache(maxsize=64)
def blank(cell: str) -> tuple[RecurrentCell, tuple[str, ...]]:
    """A cell without values, from JSON, and the names of its parameters."""
    about = json.loads(cell)
    kind: Any = MAKERS[about.pop("kind")]
    made: RecurrentCell = kind(**about, device="meta")
    return made, tuple(name for name, _ in made.named_parameters())


def _bound(cell: str, parameters: Sequence[Tensor]) -> RecurrentCell:
    """The cell with these parameters."""
    made, names = blank(cell)
    made = copy.copy(made)
    made._parameters = dict(made._parameters)
    made._modules = {name: copy.copy(module) for name, module in made._modules.items()}
    for module in made._modules.values():
        assert module is not None
        module._parameters = dict(module._parameters)
    for name, value in zip(names, parameters, strict=True):
        owner, _, own = name.rpartition(".")
        made.get_submodule(owner)._parameters[own] = value  # type: ignore[assignment]  # a plain tensor does, too
    return made


def _by_torch(
    x: Tensor, state: Tensor, parameters: Sequence[Tensor], kind: str, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    first = state.unsqueeze(0).chunk(2, -1) if kind == "LSTM" else state.unsqueeze(0)
    weights = [*parameters, torch.zeros_like(parameters[-1])]
    out, *last = TORCH[kind](x.flip(0) if reverse else x, first, weights, True, 1, 0.0, False, False, False)
    out = out.flip(0) if reverse else out.contiguous()
    return out, torch.cat(last, -1)[0].clone(), torch.ones(x.shape[:2], dtype=torch.int64, device=x.device)
