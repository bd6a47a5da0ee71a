"""Calls that `torch.compile` leaves as they are. Its compiler is imported with this module, which takes seconds."""

from __future__ import annotations

from typing import Any

import torch


@torch.compiler.disable(  # type: ignore[untyped-decorator]  # torch's own
    reason="the lengths of a PackedSequence or the resets of a layer shape its computation: to compile it as one "
    "graph, pad the sequences and leave reset out; without fullgraph=True the layer runs uncompiled"
)
def uncompiled(layer: Any, *arguments: Any, **options: Any) -> Any:
    return layer(*arguments, **options)
