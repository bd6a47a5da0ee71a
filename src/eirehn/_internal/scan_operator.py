"""The operator of exported programs, `eirehn::scan`, see `eirehn.ops.exported`, which carries it out.

It is registered by itself, right after torch has been imported, so that `torch.export.load` finds it.
"""

# No postponed annotations here: torch reads an operator's schema off them.
import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op(
    "eirehn::scan",
    mutates_args=(),
    schema="(Tensor x, Tensor state, Tensor[] parameters, str cell, int max_depth, bool reverse) "
    "-> (Tensor, Tensor, Tensor)",
)
def scan(
    x: Tensor, state: Tensor, parameters: Sequence[Tensor], cell: str, max_depth: int, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    by: Any = import_module("eirehn.ops.exported")
    found: tuple[Tensor, Tensor, Tensor] = by.run(x, state, parameters, cell, max_depth, reverse)
    return found


@scan.register_fake
def _(
    x: Tensor, state: Tensor, parameters: Sequence[Tensor], cell: str, max_depth: int, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    out = state.new_empty(*x.shape[:2], json.loads(cell)["hidden_size"])
    return out, torch.empty_like(state), x.new_empty(x.shape[:2], dtype=torch.int64)
