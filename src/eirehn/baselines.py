"""torch's RNN and LSTM in the paper's form, with one bias vector, and able to run under vmap."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import _VF, Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map_only

from .cells import one_bias
from .cells.base import product
from .checks import boolean, check_layer_input, check_layer_state, check_pair, floating, positive_int, probability
from .sequences import Rows


class OneBias(nn.RNNBase):
    """What `RNN` and `LSTM` add to torch's: where torch has a second bias vector, they have a constant zero.

    `load_state_dict` takes torch's own too, and adds up its two biases.
    """

    layer_by_layer: bool = False
    """In training, run one layer after the other with torch's dropout between them, as a recorded step needs it;
    cuDNN, which is quicker at all of them at once, drops by a state of its own."""

    def __init__(
        self,
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
        super().__init__(  # torch's RNN and LSTM name the mode themselves
            positive_int("input_size", input_size),  # type: ignore[arg-type]  # so the first is no mode
            positive_int("hidden_size", hidden_size),
            positive_int("num_layers", num_layers),
            batch_first=boolean("batch_first", batch_first),
            dropout=probability("dropout", dropout),
            bidirectional=boolean("bidirectional", bidirectional),
            device=device,
            dtype=floating(dtype),
        )

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:
        """As torch's own, and by its kernels; under function transforms, which those have no rules for, by ours."""
        self._check(input, hx)
        if torch._C._functorch.maybe_current_level() is not None:
            rows = Rows.of(input, batch_first=self.batch_first)
            return self._run(rows, self._initial_states(hx, rows))
        if self.mode == "LSTM" and isinstance(input, Tensor) and input.device.type == "cpu" and not _autocasts():
            with torch.autocast("cpu", enabled=False):
                weight: Tensor = self.weight_ih_l0  # type: ignore[assignment]  # torch sets it by name
                return self._by_torch(*tree_map_only(Tensor, lambda part: part.to(weight.dtype), (input, hx)))
        return self._by_torch(input, hx)

    def _by_torch(self, input: Tensor | PackedSequence, hx: Any) -> Any:
        drops = self.training and self.dropout > 0 and self.num_layers > 1
        if self.layer_by_layer and drops and isinstance(input, Tensor):
            return self._layer_by_layer(input, hx)
        return super().forward(input, hx)

    def _layer_by_layer(self, input: Tensor, hx: Any) -> Any:
        """By torch's kernels. (cuDNN's dropout makes its state anew once torch's generator has been set, as it is
        before a step is recorded, and cannot in the midst of that.)"""
        kernel: Any = _VF.lstm if self.mode == "LSTM" else _VF.rnn_tanh
        self._update_flat_weights()  # functional_call may have exchanged them
        batched = input.dim() == 3
        out = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            out = out.transpose(0, 1)  # (T, B, X)
        states: tuple[Tensor, ...] = (out.new_zeros(self._cells, out.size(1), self.hidden_size),) * 2
        if hx is not None:
            states = tuple(part if batched else part.unsqueeze(1) for part in self._parts(hx))
        directions = self._cells // self.num_layers
        last: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            if layer > 0:
                out = F.dropout(out, self.dropout)
            weights = self._flat_weights[4 * directions * layer : 4 * directions * (layer + 1)]
            first = tuple(part[directions * layer : directions * (layer + 1)] for part in states)
            given = first if self.mode == "LSTM" else first[0]
            with warnings.catch_warnings():
                # The weights of one layer do not lie together where those of all do: cuDNN copies them.
                warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
                out, *state = kernel(out, given, weights, True, 1, 0.0, True, self.bidirectional, False)
            last.append(tuple(state))
        finals = tuple(torch.cat(part) for part in zip(*last, strict=True))
        if not batched:
            out, finals = out.squeeze(1), tuple(part.squeeze(1) for part in finals)
        elif self.batch_first:
            out = out.transpose(0, 1)
        return out, finals if self.mode == "LSTM" else finals[0]

    def _run(self, rows: Rows, states: tuple[Tensor, ...]) -> Any:
        from .ops.baselines import Order, recurrence

        data = rows.data
        last: list[tuple[Tensor, ...]] = []
        directions = ("", "_reverse") if self.bidirectional else ("",)
        for layer in range(self.num_layers):
            if layer > 0:
                data = F.dropout(data, self.dropout, self.training)
            outs = []
            for direction in directions:
                W_ih, W_hh, b = (
                    getattr(self, f"{name}_l{layer}{direction}") for name in ("weight_ih", "weight_hh", "bias_ih")
                )
                first = tuple(part[len(last)] for part in states)
                order = Order(rows.batch_sizes, direction == "_reverse")
                out, state = recurrence(self.mode, product(data, W_ih, b), W_hh, first, order)
                outs.append(out)
                last.append(state)
            data = torch.cat(outs, -1) if self.bidirectional else outs[0]
        finals = tuple(rows.states_out(torch.stack(part)) for part in zip(*last, strict=True))
        return rows.outputs(data), finals if self.mode == "LSTM" else finals[0]

    def to_torch(self) -> nn.RNNBase:
        """torch's own layer with these weights, its second biases zero and frozen: see `one_bias`."""
        kind = nn.LSTM if self.mode == "LSTM" else nn.RNN
        weight = self.weight_ih_l0
        layer = kind(
            self.input_size,
            self.hidden_size,
            self.num_layers,
            batch_first=self.batch_first,
            dropout=self.dropout,
            bidirectional=self.bidirectional,
            device=weight.device,
            dtype=weight.dtype,
        )
        layer.load_state_dict(self.state_dict(), strict=False)
        return one_bias(layer).train(self.training)

    def _init_flat_weights(self) -> None:
        # torch calls this whenever the weights have moved or been exchanged, also by functional_call.
        for name in self._flat_weights_names:
            if name.startswith("bias_hh"):
                self._parameters.pop(name, None)
                weight = getattr(self, name.replace("hh", "ih"))
                self.__dict__[name] = torch.zeros_like(weight, requires_grad=False)
        super()._init_flat_weights()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in self._flat_weights_names:
            second = state_dict.pop(prefix + name, None) if name.startswith("bias_hh") else None
            first = prefix + name.replace("hh", "ih")
            if second is not None and first in state_dict:
                state_dict[first] = state_dict[first] + second
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _check(self, input: Tensor | PackedSequence, hx: Any) -> None:
        weight: Tensor = self.weight_ih_l0  # type: ignore[assignment]  # torch sets it by name
        check_layer_input(type(self).__name__, input, self.input_size, weight)
        if hx is None:
            return
        if isinstance(input, PackedSequence):
            batched, batch = True, int(input.batch_sizes[0])
        else:
            batched, batch = input.dim() == 3, input.size(0 if self.batch_first else 1)
        for part in self._parts(hx):
            check_layer_state(part, (self._cells, batch, self.hidden_size), batched=batched, weight=weight)

    def _initial_states(self, hx: Any, rows: Rows) -> tuple[Tensor, ...]:
        """`h` and, of an LSTM, `c` (L·D, B, H), in the rows' order of samples."""
        weight: Tensor = self.weight_ih_l0  # type: ignore[assignment]  # torch sets it by name
        if hx is not None:
            return tuple(rows.states_in(part).to(weight.dtype) for part in self._parts(hx))
        size = (self._cells, rows.batch_sizes[0], self.hidden_size)
        zeros = torch.zeros(size, dtype=weight.dtype, device=weight.device)
        return (zeros, zeros) if self.mode == "LSTM" else (zeros,)

    def _parts(self, hx: Any) -> tuple[Tensor, ...]:
        return check_pair(hx) if self.mode == "LSTM" else (hx,)

    @property
    def _cells(self) -> int:
        return self.num_layers * (2 if self.bidirectional else 1)


def _autocasts() -> bool:
    """Whether torch's LSTM runs under the autocast that there is on a CPU, if any. It asks oneDNN for a kernel of
    that type, and on a CPU without instructions for it there is none."""
    if not torch.is_autocast_enabled("cpu") or not torch.backends.mkldnn.is_available():
        return True
    if torch.get_autocast_dtype("cpu") == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


class RNN(OneBias, nn.RNN):
    """The Elman network of the paper, `h = tanh(W_ih x + b + W_hh h)`: `nn.RNN` with one bias vector.

    Several with weights of their own train as one stacked model: `torch.func.stack_module_state`, `vmap` and
    `functional_call`.
    """


class LSTM(OneBias, nn.LSTM):
    """The LSTM of the paper: `nn.LSTM` with one bias vector. States are pairs `(h, c)`.

    >>> lstm = LSTM(2, 20)
    >>> sum(p.numel() for p in lstm.parameters())
    1840

    Several with weights of their own train as one stacked model: `torch.func.stack_module_state`, `vmap` and
    `functional_call`.
    """
