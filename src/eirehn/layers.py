"""The `nn.LSTM`-like face of the family: layers, directions, packed sequences, states."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .cells import ACTCell, EIREHNCell, RecurrentCell, RHNCell, SREHNCell, SRHNCell
from .cells.base import stops_by_data
from .checks import check_dtype, check_tensor, positive_int
from .ops import Scan, scan, states_before
from .sequences import Rows


class LayerOptions(TypedDict, total=False):
    """What every layer takes, with the meaning it has for `nn.LSTM`."""

    batch_first: bool
    dropout: float
    bidirectional: bool
    device: Any
    dtype: torch.dtype | None


class HighwayOptions(LayerOptions, total=False):
    """What the highway networks take besides: dropout on the inputs of the matrix products, `x` in `W_x x` and
    `h` in `W h`, with one mask per sequence and call, kept over time and depth."""

    input_dropout: float
    hidden_dropout: float


class RecurrentLayer(nn.Module):
    """Stacked, optionally bidirectional cells behind the face of `nn.LSTM` and `nn.GRU`."""

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
        self.batch_first = _bool("batch_first", batch_first)
        self.bidirectional = _bool("bidirectional", bidirectional)
        self.dropout = _probability("dropout", dropout)
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
        return 2 if self.bidirectional else 1

    def reset_parameters(self, **initial: float | None) -> None:
        """Draws all initial values anew. The cell's `reset_parameters` says which can be named."""
        for cell in self._all_cells():
            cell.reset_parameters(**initial)
        self._watched = False

    def flatten_parameters(self) -> None:
        """Does nothing; it is here because code written for `nn.LSTM` calls it."""

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        *,
        max_depth: int | None = None,
        return_depth: bool = False,
        return_cost: bool = False,
    ) -> Any:
        """Runs a batch of sequences, as `nn.GRU` does, and returns `output, h_n`.

        Args:
            input: (T, B, X), (B, T, X) with `batch_first`, (T, X) unbatched, or a `PackedSequence`.
            hx: initial states (layers · directions, B, H); zeros where None.
            max_depth: inner steps allowed in this call, in place of the layer's own; for a network of fixed
                depth, at most that depth.
            return_depth: append the inner steps taken, int64 of shape (layers · directions, T, B), with
                `batch_first` (…, B, T), unbatched (…, T); 0 where a packed sequence has ended.
            return_cost: append the cost of depth, of the same shape: the mean over units of Σ_r d^r. It is
                differentiable; add a multiple of its mean to the loss for a cheaper model.
        """
        rows = self._rows(input)
        states = self._initial_states(hx, rows)
        out, scans = self._run(rows, states, max_depth, training=self.training, with_cost=return_cost)
        self._watch(scans)
        results = [rows.outputs(out), self._final_states(torch.stack([each.state for each in scans]), rows)]
        if return_depth:
            results.append(rows.per_step(torch.stack([each.depth for each in scans])))
        if return_cost:
            results.append(rows.per_step(torch.stack([each.cost for each in scans if each.cost is not None])))
        return tuple(results)

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
        """All cells over the rows; `inputs`, where given, collects what each cell read."""
        data, scans = rows.data, []
        cells = self._all_cells()
        for layer in range(self.num_layers):
            if layer > 0:
                data = F.dropout(data, self.dropout, training)
            for direction in range(self.num_directions):
                index = layer * self.num_directions + direction
                cell = cells[index]
                if inputs is not None:
                    inputs.append(data)
                scans.append(
                    scan(
                        cell,
                        data,
                        rows.batch_sizes,
                        states[index],
                        max_depth=cell.resolve_depth(max_depth),
                        reverse=direction == 1,
                        x_mask=_mask(self.input_dropout, states[index], cell.input_size, training),
                        h_mask=_mask(self.hidden_dropout, states[index], cell.hidden_size, training),
                        with_cost=with_cost,
                    )
                )
            last = scans[-self.num_directions :]
            data = torch.cat([each.out for each in last], -1) if self.bidirectional else last[0].out
        return data, scans

    def _watch(self, scans: list[Scan]) -> None:
        """Warns, at the first training step, of a cell no unit of which moved: it has no gradient at all."""
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

    def _rows(self, input: Tensor | PackedSequence) -> Rows:
        data = input.data if isinstance(input, PackedSequence) else input
        check_tensor("input", data)
        if isinstance(input, PackedSequence):
            if data.dim() != 2:
                raise ValueError(f"input must have 2 dimensions, got {data.dim()}")
        elif data.dim() not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {data.dim()}D instead")
        if data.size(-1) != self.input_size:
            raise ValueError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {data.size(-1)}"
            )
        check_dtype(data, self._first_cell().weight())
        return Rows.of(input, batch_first=self.batch_first)

    def _initial_states(self, hx: Any, rows: Rows) -> Tensor:
        """(layers · directions, B, S), in the rows' order of samples."""
        cell, batch = self._first_cell(), rows.batch_sizes[0]
        if hx is None:
            return cell.initial_state(batch).expand(len(self.cells), -1, -1)
        parts = cell.state_parts(hx)
        for part in parts:
            check_tensor("hx", part)
            dims = 3 if rows.batched else 2
            if part.dim() != dims:
                kind = "batched 3-D" if rows.batched else "unbatched 2-D"
                raise ValueError(f"For {kind} input, hx should also be {dims}-D but got {part.dim()}-D tensor")
            size = (len(self.cells), batch, self.hidden_size)
            expected = size if rows.batched else (size[0], size[2])
            if tuple(part.shape) != expected:
                raise ValueError(f"Expected hidden size {expected}, got {list(part.shape)}")
            check_dtype(part, cell.weight(), "hx")
        return rows.states_in(torch.cat(parts, -1)).to(cell.weight().dtype)

    def _final_states(self, states: Tensor, rows: Rows) -> Any:
        return rows.states_out(states)

    def _first_cell(self) -> RecurrentCell:
        return self.cells[0]  # type: ignore[return-value]  # a ModuleList does not know what it holds

    def _all_cells(self) -> list[RecurrentCell]:
        return list(self.cells)  # type: ignore[arg-type]  # a ModuleList does not know what it holds

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
        self.input_dropout = _probability("input_dropout", input_dropout)
        self.hidden_dropout = _probability("hidden_dropout", hidden_dropout)


class RHN(HighwayLayer):
    """Recurrent highway network (Zilly et al. 2016): `depth` inner steps a time step, own weights for each.

    >>> out, h_n = RHN(9, 32, depth=3)(torch.randn(128, 4, 9))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        depth: int = 5,
        **options: Unpack[HighwayOptions],
    ) -> None:
        super().__init__(partial(RHNCell, depth=depth), input_size, hidden_size, num_layers, **options)
        self.depth = depth


class SRHN(HighwayLayer):
    """Recurrent highway network with one set of weights for all `depth` inner steps."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        depth: int = 5,
        **options: Unpack[HighwayOptions],
    ) -> None:
        super().__init__(partial(SRHNCell, depth=depth), input_size, hidden_size, num_layers, **options)
        self.depth = depth


class ElasticLayer(HighwayLayer):
    """What the layers with an elastic gate can tell of it."""

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
    as many inner steps as its gate allows, `max_depth` at most."""

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
        weight_update: how the weights change with depth: "printed" (the paper's equations as they stand),
            "recursive", "additive", "scaling", "outer", or "none", which is SREHN.
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
        weight_update: str = "printed",
        **options: Unpack[HighwayOptions],
    ) -> None:
        cell = partial(EIREHNCell, max_depth=max_depth, hyper_size=hyper_size, weight_update=weight_update)
        super().__init__(cell, input_size, hidden_size, num_layers, **options)
        self.max_depth = max_depth
        self.hyper_size = self.cells[0].hyper_size
        self.weight_update = weight_update


class ACT(RecurrentLayer):
    """Adaptive computation time (Graves 2016) around torch's RNN, GRU or LSTM cell (`cell`).

    `max_depth` is its time limit. `return_cost` gives the ponder cost `N + R`; with an LSTM, `hx` and `h_n` are
    the pair `(h, c)`.
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


def _mask(probability: float, states: Tensor, size: int, training: bool) -> Tensor | None:
    """One inverted-dropout mask per sequence, (B, size)."""
    if not training or probability == 0:
        return None
    return F.dropout(states.new_ones(states.size(0), size), probability)


def _bool(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
    return value


def _probability(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(
            f"{name} should be a number in range [0, 1] representing the probability of an element being "
            f"zeroed, got {value!r}"
        )
    return float(value)
