"""What all layers share: stacking, directions, packed sequences, states."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, TypeVar, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .._internal.checks import boolean, check_layer_input, check_layer_state, positive_int, probability
from .._internal.rows import Rows, shaped_by_values
from ..cells import RecurrentCell
from ..cells.base import no_script, stops_by_data
from ..ops import Scan, masked_rows, scan, states_before
from ..ops.exported import exported_scan

Sequences = TypeVar("Sequences", Tensor, PackedSequence)
"""What comes in as a tensor comes out as a tensor; packed sequences come out packed."""


class LayerOptions(TypedDict, total=False):
    """Options of every layer, with the meaning they have for `nn.LSTM`."""

    batch_first: bool
    dropout: float
    bidirectional: bool
    device: Any
    dtype: torch.dtype | None


class RecurrentLayer(nn.Module):
    """Base class of the layers: stacked, optionally bidirectional cells with the interface of `nn.GRU`.

    The cells are in `layer.cells`, an `nn.ModuleList` ordered as `h_n`: layer by layer, and in each layer the
    forward direction before the backward one.

    Args:
        make_cell: makes a cell, called as `make_cell(input_size, hidden_size, device=device, dtype=dtype)`.
        input_size: features of the input at a time step.
        hidden_size: units of a layer.
        num_layers: layers stacked on each other. Default: 1.
        batch_first: whether input and output are `(B, T, ·)` rather than `(T, B, ·)`. Default: `False`.
        dropout: probability of dropout on the outputs of each layer but the last. Default: 0.
        bidirectional: whether each layer also reads the sequence backward. Default: `False`.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Examples:
        >>> from functools import partial
        >>> from eirehn.layers import RecurrentLayer
        >>> layer = RecurrentLayer(partial(eirehn.RHNCell, depth=2), input_size=9, hidden_size=32)
        >>> out, h_n = layer(torch.randn(12, 4, 9))
        >>> out.shape, h_n.shape
        (torch.Size([12, 4, 32]), torch.Size([1, 4, 32]))
    """

    cells: nn.ModuleList
    input_dropout: float = 0.0
    hidden_dropout: float = 0.0

    def __init__(
        self,
        make_cell: Callable[..., RecurrentCell],
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = positive_int("input_size", input_size)
        self.hidden_size = positive_int("hidden_size", hidden_size)
        self.num_layers = positive_int("num_layers", num_layers)
        self.batch_first = boolean("batch_first", batch_first)
        self.bidirectional = boolean("bidirectional", bidirectional)
        self.dropout = probability("dropout", dropout)
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=4,
            )
        sizes = [input_size] + [hidden_size * self.num_directions] * (num_layers - 1)
        self.cells = nn.ModuleList(
            make_cell(size, hidden_size, device=device, dtype=dtype)
            for size in sizes
            for _ in range(self.num_directions)
        )
        self._watched = False

    @property
    def num_directions(self) -> int:
        """2 for a bidirectional layer, otherwise 1."""
        return 2 if self.bidirectional else 1

    def reset_parameters(self, **initial: float | None) -> None:
        """Draws all parameters anew.

        Args:
            initial: initial values by name, as the `reset_parameters` of the layer's cell takes them.

        Examples:
            >>> layer = eirehn.EIREHN(9, 32)
            >>> layer.reset_parameters(gate_bias=-2.0, alpha=0.1)
        """
        for cell in self._all_cells():
            cell.reset_parameters(**initial)
        self._watched = False

    def flatten_parameters(self) -> None:
        """Does nothing. It exists because code written for `nn.LSTM` calls it."""

    def __prepare_scriptable__(self) -> NoReturn:  # torch.jit.script calls it first
        no_script(self)

    @overload
    def forward(
        self,
        input: Sequences,
        hx: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        max_depth: int | None = None,
        return_depth: Literal[False] = False,
        return_cost: Literal[False] = False,
    ) -> tuple[Sequences, Tensor]: ...
    @overload
    def forward(
        self,
        input: Sequences,
        hx: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        max_depth: int | None = None,
        return_depth: Literal[True],
        return_cost: Literal[False] = False,
    ) -> tuple[Sequences, Tensor, Tensor]: ...
    @overload
    def forward(
        self,
        input: Sequences,
        hx: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        max_depth: int | None = None,
        return_depth: Literal[False] = False,
        return_cost: Literal[True],
    ) -> tuple[Sequences, Tensor, Tensor]: ...
    @overload
    def forward(
        self,
        input: Sequences,
        hx: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        max_depth: int | None = None,
        return_depth: Literal[True],
        return_cost: Literal[True],
    ) -> tuple[Sequences, Tensor, Tensor, Tensor]: ...
    @overload
    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        max_depth: int | None = None,
        return_depth: bool = False,
        return_cost: bool = False,
    ) -> tuple[Any, ...]: ...
    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        *,
        reset: Tensor | None = None,
        max_depth: int | None = None,
        return_depth: bool = False,
        return_cost: bool = False,
    ) -> Any:
        """Runs the layer over a batch of sequences, as `nn.GRU` does.

        Args:
            input: the sequences. `PackedSequence`s end at their own lengths.
            hx: initial state of each layer and direction. Default: zeros.
            reset: where a new episode begins: before a time step at which it is true the state is set back to
                zero, in place of `hx` if it is the first. A bidirectional layer reads each episode by itself, and
                `hx` of the backward direction is for the last one. Not for a `PackedSequence`. Default: nowhere.
            max_depth: most inner steps of a time step in this call, in place of the layer's own; a layer of fixed
                depth takes at most that depth. Default: the layer's own.
            return_depth: whether to return the number of inner steps taken, too. Default: `False`.
            return_cost: whether to return the cost of depth, too, a differentiable form of the depth, which is
                `⌈cost⌉ − 1` up to `max_depth`: add a multiple of its mean to the loss for a model that takes fewer
                inner steps. The depth itself in a layer of fixed depth. Default: `False`.

        Returns:
            `(output, h_n)`, followed by `depth` where `return_depth` and by `cost` where `return_cost` is true.

        Shape:
            L is `num_layers`, D is 2 if bidirectional and otherwise 1, X is `input_size`, H is `hidden_size`.

            - input: `(T, B, X)`; `(B, T, X)` with `batch_first`; `(T, X)` unbatched; or a `PackedSequence`.
            - hx and h_n: `(L·D, B, H)`, unbatched `(L·D, H)`.
            - reset (bool): `(T, B)`; `(B, T)` with `batch_first`; `(T,)` unbatched.
            - output: `(T, B, D·H)`; `(B, T, D·H)` with `batch_first`; `(T, D·H)` unbatched; or a `PackedSequence`.
            - depth (int64) and cost: `(L·D, T, B)`; `(L·D, B, T)` with `batch_first`; `(L·D, T)` unbatched. Both
              are 0 where a packed sequence has ended.

        Examples:
            >>> layer = eirehn.SREHN(9, 32, max_depth=10)
            >>> out, h_n, depth, cost = layer(torch.randn(12, 4, 9), return_depth=True, return_cost=True)
            >>> depth.shape, cost.shape
            (torch.Size([1, 12, 4]), torch.Size([1, 12, 4]))
            >>> loss = out.square().mean() + 0.01 * cost.mean()
            >>> reset = torch.zeros(12, 4, dtype=torch.bool)
            >>> reset[5, 0] = True  # the first sample begins anew at time step 5
            >>> out, h_n = layer(torch.randn(12, 4, 9), reset=reset)
        """
        if torch.compiler.is_dynamo_compiling() and shaped_by_values(input, reset, batch_first=self.batch_first):
            from .uncompiled import uncompiled

            options = {"max_depth": max_depth, "return_depth": return_depth, "return_cost": return_cost}
            return uncompiled(self, input, hx, reset=reset, **options)
        rows = self._rows(input, reset)
        states = self._initial_states(hx, rows)
        out, scans = self._run(rows, states, max_depth, training=self.training, with_cost=return_cost)
        self._watch(scans)
        results = [rows.outputs(out), self._final_states(torch.stack([each.state for each in scans]), rows)]
        if return_depth:
            results.append(rows.per_step(torch.stack([each.depth for each in scans])))
        if return_cost:
            results.append(rows.per_step(torch.stack([each.cost for each in scans if each.cost is not None])))
        return tuple(results)

    if TYPE_CHECKING:  # a call has the types of `forward`
        __call__ = forward

    def _run(
        self,
        rows: Rows,
        states: Tensor,
        max_depth: int | None,
        *,
        training: bool,
        with_cost: bool = False,
        inputs: list[Tensor] | None = None,
    ) -> tuple[Tensor, list[Scan]]:
        """Runs all cells over the rows; `inputs`, if given, collects the input of each cell."""
        data, scans = rows.data, []
        cells = self._all_cells()
        for layer in range(self.num_layers):
            if layer > 0:
                data = F.dropout(data, self.dropout, training)
            for direction in range(self.num_directions):
                index = layer * self.num_directions + direction
                cell = cells[index]
                most = cell.resolve_depth(max_depth)
                if inputs is not None:
                    inputs.append(data)
                x_mask = _mask(self.input_dropout, rows, states, cell.input_size, training)
                h_mask = _mask(self.hidden_dropout, rows, states, cell.hidden_size, training)
                options: Any = {"max_depth": most, "reverse": direction == 1, "x_mask": x_mask, "h_mask": h_mask}
                if rows.batch_sizes is None:
                    found = exported_scan(cell, data, states[index], with_cost=with_cost, **options)
                else:
                    found = scan(cell, data, rows.batch_sizes, states[index], **options)
                if with_cost and found.cost is None:
                    before = states_before(found.out, rows.batch_sizes, states[index], reverse=direction == 1)
                    h_rows = masked_rows(before, h_mask, rows.batch_sizes)
                    cost = cell.depth_cost(masked_rows(data, x_mask, rows.batch_sizes), h_rows, most)  # (N,)
                    found = found._replace(cost=cost)
                scans.append(found)
            last = scans[-self.num_directions :]
            data = torch.cat([each.out for each in last], -1) if self.bidirectional else last[0].out
        return data, scans

    def _watch(self, scans: list[Scan]) -> None:
        """Warns at the first training step if a cell changed none of its units: it has no gradient at all."""
        if self._watched or not self.training or not torch.is_grad_enabled():
            return
        if not all(stops_by_data(each.depth) for each in scans) or not scans[0].depth.numel():
            return
        self._watched = True
        dead = [index for index, each in enumerate(scans) if not each.depth.any()]
        if dead:
            warnings.warn(
                f"{type(self).__name__}: all units of cell(s) {dead} are dead: the elastic gate is zero from the "
                "first inner step on for every input, so nothing there can learn. Call reset_parameters(), or "
                "choose a smaller alpha, a larger beta_hat or a more negative decay_bias.",
                stacklevel=5,  # past this method, forward and nn.Module's two, at the caller's line
            )

    def _rows(self, input: Tensor | PackedSequence, reset: Tensor | None = None) -> Rows:
        check_layer_input(type(self).__name__, input, self.input_size, self._first_cell().weight())
        return Rows.of(input, batch_first=self.batch_first, bidirectional=self.bidirectional, reset=reset)

    def _initial_states(self, hx: Any, rows: Rows) -> Tensor:
        """(layers · directions, B, S), with samples in the order of the rows."""
        cell = self._first_cell()
        if hx is None:
            return cell.initial_state(rows.samples).expand(len(self.cells), -1, -1)
        parts = cell.state_parts(hx)
        size = (len(self.cells), rows.batch, self.hidden_size)
        for part in parts:
            check_layer_state(part, size, batched=rows.batched, weight=cell.weight())
        return rows.states_in(torch.cat(parts, -1)).to(cell.weight().dtype)

    def _final_states(self, states: Tensor, rows: Rows) -> Any:
        return rows.states_out(states)

    def _first_cell(self) -> RecurrentCell:
        return next(iter(self.cells))  # type: ignore[return-value]  # a ModuleList is not typed by its content

    def _all_cells(self) -> list[RecurrentCell]:
        return list(self.cells)  # type: ignore[arg-type]  # a ModuleList is not typed by its content

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("num_layers", 1),
            ("batch_first", False),
            ("dropout", 0.0),
            ("bidirectional", False),
            ("input_dropout", 0.0),
            ("hidden_dropout", 0.0),
        ):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text


def _mask(probability: float, rows: Rows, states: Tensor, size: int, training: bool) -> Tensor | None:
    """One inverted-dropout mask per sequence, for the samples of the rows."""
    if not training or probability == 0:
        return None
    return rows.masks_in(F.dropout(states.new_ones(rows.batch, size), probability))
