"""The layers of the family, each with the interface of `nn.LSTM`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .._internal.checks import probability
from ..cells import ACTCell, EIREHNCell, RecurrentCell, RHNCell, SREHNCell, SRHNCell
from ..ops import states_before
from .base import LayerOptions, RecurrentLayer
from .rows import Rows


class HighwayOptions(LayerOptions, total=False):
    """What the highway networks take besides: dropout on the inputs of the matrix products, `x` in `W_x x` and
    `h` in `W h`, with one mask per sequence and call, kept over time and depth."""

    input_dropout: float
    hidden_dropout: float


class HighwayLayer(RecurrentLayer):
    """What the highway networks add: dropout on the inputs of their matrix products."""

    def __init__(
        self,
        make_cell: Callable[..., RecurrentCell],
        input_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        input_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(make_cell, input_size, hidden_size, num_layers, **options)
        self.input_dropout = probability("input_dropout", input_dropout)
        self.hidden_dropout = probability("hidden_dropout", hidden_dropout)


class RHN(HighwayLayer):
    """Recurrent highway network (Zilly et al. 2016): `depth` inner steps a time step, own weights for each.

    >>> out, h_n = RHN(9, 32, depth=3)(torch.randn(128, 4, 9))
    """

    _cell: type[RHNCell] = RHNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        depth: int = 5,
        **options: Unpack[HighwayOptions],
    ) -> None:
        super().__init__(partial(self._cell, depth=depth), input_size, hidden_size, num_layers, **options)
        self.depth = depth


class SRHN(RHN):
    """Recurrent highway network with one set of weights for all `depth` inner steps.

    >>> out, h_n = SRHN(9, 32, depth=3)(torch.randn(128, 4, 9))
    """

    _cell = SRHNCell


class ElasticLayer(HighwayLayer):
    """What the layers with an elastic gate report of it."""

    def depth_bound(self) -> Tensor:
        """The paper's bound on the depth of each unit, (layers · directions, H)."""
        return torch.stack([cell.depth_bound() for cell in self._elastic_cells()])

    @torch.no_grad()
    def dead_units(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> Tensor:
        """The share of units, per cell (layers · directions,), whose gate is shut from the first inner step on
        at every time step of every sample of `input`. Such a unit never changes, and has no gradient."""
        rows = self._rows(input)
        states = self._initial_states(hx, rows)
        inputs: list[Tensor] = []
        _, scans = self._run(rows, states, None, training=False, inputs=inputs)
        shares = []
        for index, cell in enumerate(self._elastic_cells()):
            reverse = self.bidirectional and index % 2 == 1
            before = states_before(scans[index].out, rows.batch_sizes, states[index], reverse=reverse)
            shut = cell.first_gate(cell.project(inputs[index]), before) <= 0  # (N, H)
            shares.append(shut.all(0).float().mean())
        return torch.stack(shares)

    def _elastic_cells(self) -> list[SREHNCell]:
        return [cell for cell in self.cells if isinstance(cell, SREHNCell)]


class SREHN(ElasticLayer):
    """Recurrent highway network with shared weights and the elastic gate: each sample takes, at each time step,
    as many inner steps as its gate allows, `max_depth` at most.

    >>> out, h_n, depth = SREHN(9, 32, max_depth=10)(torch.randn(128, 4, 9), return_depth=True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        max_depth: int = 10,
        **options: Unpack[HighwayOptions],
    ) -> None:
        cell = partial(SREHNCell, max_depth=max_depth)
        super().__init__(cell, input_size, hidden_size, num_layers, **options)
        self.max_depth = max_depth


class EIREHN(ElasticLayer):
    """Early Improving Recurrent Elastic Highway Network: the elastic gate decides at every time step how many
    inner steps to take, and a hypernetwork of `hyper_size` units changes the weights from one to the next.

    >>> layer = EIREHN(input_size=9, hidden_size=48, max_depth=10, batch_first=True)
    >>> out, h_n, depth = layer(torch.randn(32, 128, 9), return_depth=True)

    Args:
        input_size, hidden_size, num_layers, batch_first, dropout, bidirectional, device, dtype: as for `nn.LSTM`.
        max_depth: the most inner steps of a time step; a call may name another.
        hyper_size: units of the hypernetwork, ⌈hidden_size / 2⌉ where None.
        weight_update: how the weights change with depth: "bounded", the most stable; "recursive", the same without
            a bound on the change; "paper", Eqs. 17 and 22 of the paper as they stand; "additive", "scaling",
            "outer", or "none", which is SREHN.
        input_dropout, hidden_dropout: dropout on the inputs of the matrix products, one mask per sequence.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        max_depth: int = 10,
        hyper_size: int | None = None,
        weight_update: str = "bounded",
        **options: Unpack[HighwayOptions],
    ) -> None:
        cell = partial(EIREHNCell, max_depth=max_depth, hyper_size=hyper_size, weight_update=weight_update)
        super().__init__(cell, input_size, hidden_size, num_layers, **options)
        self.max_depth = max_depth
        self.hyper_size = self.cells[0].hyper_size
        self.weight_update = self.cells[0].weight_update


class ACT(RecurrentLayer):
    """Adaptive computation time (Graves 2016) around torch's RNN, GRU or LSTM cell (`cell`).

    `max_depth` is its time limit. `return_cost` gives the ponder cost `N + R`; with an LSTM, `hx` and `h_n` are
    the pair `(h, c)`.

    >>> out, (h_n, c_n), cost = ACT(9, 32, cell="LSTM")(torch.randn(128, 4, 9), return_cost=True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        cell: str = "LSTM",
        max_depth: int = 10,
        epsilon: float = 0.01,
        **options: Unpack[LayerOptions],
    ) -> None:
        make_cell = partial(ACTCell, cell=cell, max_depth=max_depth, epsilon=epsilon)
        super().__init__(make_cell, input_size, hidden_size, num_layers, **options)
        self.kind = cell
        self.max_depth = max_depth

    def _final_states(self, states: Tensor, rows: Rows) -> Any:
        states = rows.states_out(states)
        if self.kind != "LSTM":
            return states
        h, c = states.chunk(2, -1)
        return h.contiguous(), c.contiguous()
