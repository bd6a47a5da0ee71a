"""The layers of the family, each with the interface of `nn.LSTM`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .._internal.checks import probability
from .._internal.rows import Rows
from ..cells import ACTCell, EIREHNCell, RecurrentCell, RHNCell, SREHNCell, SRHNCell
from ..ops import states_before
from .base import LayerOptions, RecurrentLayer


class HighwayLayer(RecurrentLayer):
    """Base class of the highway networks, with dropout on the inputs of their matrix products."""

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
    """Recurrent highway network (Zilly et al. 2016) with the interface of `nn.GRU`.

    At each time step it takes `depth` inner steps, each with weights of its own; `RHNCell` has
    the equations.

    Call it as `layer(input, hx=None, *, reset=None, max_depth=None, return_depth=False, return_cost=False)`: it
    returns `output, h_n`, followed by `depth` (inner steps taken) and `cost` (a differentiable cost of depth) if
    asked for. `max_depth` limits the inner steps in this call; `hx`, the initial state, is zero by default; `reset`
    says where a new episode begins, with the state set back to zero.

    Args:
        input_size: features of the input at a time step.
        hidden_size: units of a layer.
        num_layers: layers stacked on each other, each reading the outputs of the one before. Default: 1.
        depth: inner steps of each time step. Default: 5.
        max_depth: another name for `depth`, as the other layers call it; give one of them.
        input_dropout: probability of dropout on the input inside the matrix products (`x` in `W_x x`), with one
            mask per sequence, kept over all time steps and inner steps. Default: 0.
        hidden_dropout: the same for the state (`h` in `W_h h`). Default: 0.
        batch_first: whether input and output are `(B, T, ·)` rather than `(T, B, ·)`. Default: `False`.
        dropout: probability of dropout on the outputs of each layer but the last. Default: 0.
        bidirectional: whether each layer also reads the sequence backward. Default: `False`.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        L is `num_layers`, D is 2 if bidirectional and otherwise 1, X is `input_size`, H is `hidden_size`.

        - input: `(T, B, X)`; `(B, T, X)` with `batch_first`; `(T, X)` unbatched; or a `PackedSequence`.
        - hx and h_n: `(L·D, B, H)`; unbatched `(L·D, H)`.
        - output: `(T, B, D·H)`; `(B, T, D·H)` with `batch_first`; `(T, D·H)` unbatched; or a `PackedSequence`.
        - depth (int64) and cost: `(L·D, T, B)`; `(L·D, B, T)` with `batch_first`; `(L·D, T)` unbatched.

    Examples:
        >>> layer = eirehn.RHN(9, 32, depth=3)
        >>> out, h_n = layer(torch.randn(12, 4, 9))
        >>> out.shape, h_n.shape
        (torch.Size([12, 4, 32]), torch.Size([1, 4, 32]))
    """

    _cell: type[RHNCell] = RHNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        depth: int | None = None,
        max_depth: int | None = None,
        input_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            partial(self._cell, depth=depth, max_depth=max_depth),
            input_size,
            hidden_size,
            num_layers,
            input_dropout=input_dropout,
            hidden_dropout=hidden_dropout,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
        )
        self.depth = self.max_depth = self.cells[0].depth


class SRHN(RHN):
    """Recurrent highway network with one set of weights for all inner steps, with the interface of `nn.GRU`.

    At each time step it takes `depth` inner steps; `SRHNCell` has the equations.

    Call it as `layer(input, hx=None, *, reset=None, max_depth=None, return_depth=False, return_cost=False)`: it
    returns `output, h_n`, followed by `depth` (inner steps taken) and `cost` (a differentiable cost of depth) if
    asked for. `max_depth` limits the inner steps in this call; `hx`, the initial state, is zero by default; `reset`
    says where a new episode begins, with the state set back to zero.

    Args:
        input_size: features of the input at a time step.
        hidden_size: units of a layer.
        num_layers: layers stacked on each other, each reading the outputs of the one before. Default: 1.
        depth: inner steps of each time step. Default: 5.
        max_depth: another name for `depth`, as the other layers call it; give one of them.
        input_dropout: probability of dropout on the input inside the matrix products (`x` in `W_x x`), with one
            mask per sequence, kept over all time steps and inner steps. Default: 0.
        hidden_dropout: the same for the state (`h` in `W_h h`). Default: 0.
        batch_first: whether input and output are `(B, T, ·)` rather than `(T, B, ·)`. Default: `False`.
        dropout: probability of dropout on the outputs of each layer but the last. Default: 0.
        bidirectional: whether each layer also reads the sequence backward. Default: `False`.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        L is `num_layers`, D is 2 if bidirectional and otherwise 1, X is `input_size`, H is `hidden_size`.

        - input: `(T, B, X)`; `(B, T, X)` with `batch_first`; `(T, X)` unbatched; or a `PackedSequence`.
        - hx and h_n: `(L·D, B, H)`; unbatched `(L·D, H)`.
        - output: `(T, B, D·H)`; `(B, T, D·H)` with `batch_first`; `(T, D·H)` unbatched; or a `PackedSequence`.
        - depth (int64) and cost: `(L·D, T, B)`; `(L·D, B, T)` with `batch_first`; `(L·D, T)` unbatched.

    Examples:
        >>> layer = eirehn.SRHN(9, 32, depth=3)
        >>> out, h_n, depth = layer(torch.randn(12, 4, 9), return_depth=True)
        >>> depth.unique()
        tensor([3])
    """

    _cell = SRHNCell


class ElasticLayer(HighwayLayer):
    """Base class of the layers with an elastic gate, with what can be asked about the gate."""

    def depth_bound(self) -> Tensor:
        """The paper's bound on the depth of each unit: no input takes it deeper.

        Returns:
            Float64 of shape `(num_layers · directions, hidden_size)`.

        Examples:
            >>> eirehn.SREHN(9, 4).depth_bound()
            tensor([[7., 7., 7., 7.]], dtype=torch.float64)
        """
        return torch.stack([cell.depth_bound() for cell in self._elastic_cells()])

    @torch.no_grad()
    def dead_units(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> Tensor:
        """The share of dead units: their gate is closed from the first inner step on, at every time step of every
        sequence of `input`. A dead unit never changes, and has no gradient.

        Args:
            input: sequences, as `forward` takes them.
            hx: initial state. Default: zeros.

        Returns:
            Shape `(num_layers · directions,)`.

        Examples:
            >>> eirehn.EIREHN(9, 32).dead_units(torch.randn(12, 4, 9))
            tensor([0.])
        """
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
    """Recurrent highway network with shared weights and the elastic gate, with the interface of `nn.GRU`.

    At each time step the gate decides, for each sequence by itself, how many inner steps to take, `max_depth` at
    most; `SREHNCell` has the equations.

    Call it as `layer(input, hx=None, *, reset=None, max_depth=None, return_depth=False, return_cost=False)`: it
    returns `output, h_n`, followed by `depth` (inner steps taken) and `cost` (a differentiable cost of depth) if
    asked for. `max_depth` limits the inner steps in this call; `hx`, the initial state, is zero by default; `reset`
    says where a new episode begins, with the state set back to zero.

    Args:
        input_size: features of the input at a time step.
        hidden_size: units of a layer.
        num_layers: layers stacked on each other, each reading the outputs of the one before. Default: 1.
        max_depth: most inner steps of a time step. Default: 10.
        input_dropout: probability of dropout on the input inside the matrix products (`x` in `W_x x`), with one
            mask per sequence, kept over all time steps and inner steps. Default: 0.
        hidden_dropout: the same for the state (`h` in `W_h h`). Default: 0.
        batch_first: whether input and output are `(B, T, ·)` rather than `(T, B, ·)`. Default: `False`.
        dropout: probability of dropout on the outputs of each layer but the last. Default: 0.
        bidirectional: whether each layer also reads the sequence backward. Default: `False`.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        L is `num_layers`, D is 2 if bidirectional and otherwise 1, X is `input_size`, H is `hidden_size`.

        - input: `(T, B, X)`; `(B, T, X)` with `batch_first`; `(T, X)` unbatched; or a `PackedSequence`.
        - hx and h_n: `(L·D, B, H)`; unbatched `(L·D, H)`.
        - output: `(T, B, D·H)`; `(B, T, D·H)` with `batch_first`; `(T, D·H)` unbatched; or a `PackedSequence`.
        - depth (int64) and cost: `(L·D, T, B)`; `(L·D, B, T)` with `batch_first`; `(L·D, T)` unbatched.

    Examples:
        >>> layer = eirehn.SREHN(9, 32, max_depth=10)
        >>> out, h_n, depth = layer(torch.randn(12, 4, 9), return_depth=True)
        >>> out.shape, depth.shape
        (torch.Size([12, 4, 32]), torch.Size([1, 12, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        max_depth: int = 10,
        input_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        cell = partial(SREHNCell, max_depth=max_depth)
        super().__init__(
            cell,
            input_size,
            hidden_size,
            num_layers,
            input_dropout=input_dropout,
            hidden_dropout=hidden_dropout,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
        )
        self.max_depth = max_depth


class EIREHN(ElasticLayer):
    """Early Improving Recurrent Elastic Highway Network, with the interface of `nn.GRU`.

    At each time step the elastic gate decides, for each sequence by itself, how many inner steps to take,
    `max_depth` at most; from one inner step to the next a small hypernetwork changes the weights.
    `EIREHNCell` has the equations.

    Call it as `layer(input, hx=None, *, reset=None, max_depth=None, return_depth=False, return_cost=False)`: it
    returns `output, h_n`, followed by `depth` (inner steps taken) and `cost` (a differentiable cost of depth) if
    asked for. `max_depth` limits the inner steps in this call; `hx`, the initial state, is zero by default; `reset`
    says where a new episode begins, with the state set back to zero.

    Args:
        input_size: features of the input at a time step.
        hidden_size: units of a layer.
        num_layers: layers stacked on each other, each reading the outputs of the one before. Default: 1.
        max_depth: most inner steps of a time step. Default: 10.
        hyper_size: units of the hypernetwork. Default: `⌈hidden_size / 2⌉`.
        weight_update: how the hypernetwork changes the weights: `"bounded"`, the most stable; `"recursive"`, the
            same without a bound on the change; `"paper"`, Eqs. 17 and 22 of the paper; `"additive"`, `"scaling"`,
            `"outer"`; or `"none"`, which is SREHN. Default: `"bounded"`.
        input_dropout: probability of dropout on the input inside the matrix products (`x` in `W_x x`), with one
            mask per sequence, kept over all time steps and inner steps. Default: 0.
        hidden_dropout: the same for the state (`h` in `W_h h`). Default: 0.
        batch_first: whether input and output are `(B, T, ·)` rather than `(T, B, ·)`. Default: `False`.
        dropout: probability of dropout on the outputs of each layer but the last. Default: 0.
        bidirectional: whether each layer also reads the sequence backward. Default: `False`.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        L is `num_layers`, D is 2 if bidirectional and otherwise 1, X is `input_size`, H is `hidden_size`.

        - input: `(T, B, X)`; `(B, T, X)` with `batch_first`; `(T, X)` unbatched; or a `PackedSequence`.
        - hx and h_n: `(L·D, B, H)`; unbatched `(L·D, H)`.
        - output: `(T, B, D·H)`; `(B, T, D·H)` with `batch_first`; `(T, D·H)` unbatched; or a `PackedSequence`.
        - depth (int64) and cost: `(L·D, T, B)`; `(L·D, B, T)` with `batch_first`; `(L·D, T)` unbatched.

    Examples:
        >>> layer = eirehn.EIREHN(input_size=9, hidden_size=48, max_depth=10, batch_first=True)
        >>> out, h_n, depth = layer(torch.randn(32, 128, 9), return_depth=True)
        >>> out.shape, h_n.shape, depth.shape
        (torch.Size([32, 128, 48]), torch.Size([1, 32, 48]), torch.Size([1, 32, 128]))
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
        input_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        cell = partial(EIREHNCell, max_depth=max_depth, hyper_size=hyper_size, weight_update=weight_update)
        super().__init__(
            cell,
            input_size,
            hidden_size,
            num_layers,
            input_dropout=input_dropout,
            hidden_dropout=hidden_dropout,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
        )
        self.max_depth = max_depth
        self.hyper_size = self.cells[0].hyper_size
        self.weight_update = self.cells[0].weight_update


class ACT(RecurrentLayer):
    """Adaptive computation time (Graves 2016) around torch's RNN, GRU or LSTM cell.

    At each time step a halting unit decides, for each sequence by itself, how many inner steps to take, `max_depth`
    at most; `ACTCell` has the equations.

    Call it as `layer(input, hx=None, *, reset=None, max_depth=None, return_depth=False, return_cost=False)`: it
    returns `output, h_n`, followed by `depth` (inner steps taken) and `cost` (the ponder cost `N + R`) if asked
    for. With an LSTM `hx` and `h_n` are pairs `(h, c)`. `reset` says where a new episode begins, with the state set
    back to zero.

    Args:
        input_size: features of the input at a time step.
        hidden_size: units of a layer.
        num_layers: layers stacked on each other, each reading the outputs of the one before. Default: 1.
        cell: `"RNN"`, `"GRU"` or `"LSTM"`. Default: `"LSTM"`.
        max_depth: most inner steps of a time step. Default: 10.
        epsilon: a sequence halts when its halting probabilities sum to at least `1 − epsilon`. Default: 0.01.
        batch_first: whether input and output are `(B, T, ·)` rather than `(T, B, ·)`. Default: `False`.
        dropout: probability of dropout on the outputs of each layer but the last. Default: 0.
        bidirectional: whether each layer also reads the sequence backward. Default: `False`.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        L is `num_layers`, D is 2 if bidirectional and otherwise 1, X is `input_size`, H is `hidden_size`.

        - input: `(T, B, X)`; `(B, T, X)` with `batch_first`; `(T, X)` unbatched; or a `PackedSequence`.
        - hx and h_n: `(L·D, B, H)`; unbatched `(L·D, H)`.
        - output: `(T, B, D·H)`; `(B, T, D·H)` with `batch_first`; `(T, D·H)` unbatched; or a `PackedSequence`.
        - depth (int64) and cost: `(L·D, T, B)`; `(L·D, B, T)` with `batch_first`; `(L·D, T)` unbatched.

    Examples:
        >>> layer = eirehn.ACT(9, 32, cell="LSTM")
        >>> out, (h_n, c_n), cost = layer(torch.randn(12, 4, 9), return_cost=True)
        >>> out.shape, h_n.shape, c_n.shape, cost.shape
        (torch.Size([12, 4, 32]), torch.Size([1, 4, 32]), torch.Size([1, 4, 32]), torch.Size([1, 12, 4]))
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
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        make_cell = partial(ACTCell, cell=cell, max_depth=max_depth, epsilon=epsilon)
        super().__init__(
            make_cell,
            input_size,
            hidden_size,
            num_layers,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
        )
        self.kind = cell
        self.max_depth = max_depth

    if TYPE_CHECKING:  # states are tensors or pairs, which depends on `cell`

        def forward(self, input: Any, hx: Any = None, **options: Any) -> Any: ...

        __call__ = forward

    def _final_states(self, states: Tensor, rows: Rows) -> Any:
        states = rows.states_out(states)
        if self.kind != "LSTM":
            return states
        h, c = states.chunk(2, -1)
        return h.contiguous(), c.contiguous()
