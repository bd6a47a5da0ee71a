"""torch's own RNN, GRU and LSTM in the form the paper counts: one bias vector, where torch has two."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import _VF, Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map_only

from .._internal.checks import (
    boolean,
    check_layer_input,
    check_layer_state,
    check_pair,
    floating,
    positive_int,
    probability,
)

Recurrent = TypeVar("Recurrent", bound=nn.RNNBase | nn.RNNCellBase)


def one_bias(module: Recurrent) -> Recurrent:
    """Sets the hidden-to-hidden biases of a torch RNN, GRU or LSTM (layer or cell) to zero and freezes them.

    What is left to train has the paper's parameter count. `module.reset_parameters()` draws the frozen biases
    anew: call `one_bias` again after it.

    >>> lstm = one_bias(nn.LSTM(2, 20))
    >>> sum(p.numel() for p in lstm.parameters() if p.requires_grad)
    1840
    """
    if not isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        raise TypeError(f"one_bias takes a torch RNN, GRU or LSTM, got: {type(module).__name__}")
    if not module.bias:
        raise ValueError("one_bias needs a module with biases, got one made with bias=False")
    for name, parameter in module.named_parameters():
        if name.startswith("bias_hh"):
            nn.init.zeros_(parameter)
            parameter.requires_grad_(False)
    return module


class OneBias(nn.RNNBase):
    """What `RNN`, `GRU` and `LSTM` add to torch's: where torch has a second bias vector, they have a constant zero.

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
        super().__init__(  # torch's RNN, GRU and LSTM name the mode themselves
            positive_int("input_size", input_size),  # type: ignore[arg-type]  # so the first is not a mode
            positive_int("hidden_size", hidden_size),
            positive_int("num_layers", num_layers),
            batch_first=boolean("batch_first", batch_first),
            dropout=probability("dropout", dropout),
            bidirectional=boolean("bidirectional", bidirectional),
            device=device,
            dtype=floating(dtype),
        )

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:
        """As torch's own, and by its kernels."""
        self._check(input, hx)
        if self.mode == "LSTM" and isinstance(input, Tensor) and input.device.type == "cpu" and not _autocasts():
            with torch.autocast("cpu", enabled=False):
                weight: Tensor = self.weight_ih_l0  # type: ignore[assignment]  # torch sets it by name
                return self._by_torch(*tree_map_only(Tensor, lambda part: part.to(weight.dtype), (input, hx)))
        return self._by_torch(input, hx)

    def _by_torch(self, input: Tensor | PackedSequence, hx: Any) -> Any:
        drops = self.training and self.dropout > 0 and self.num_layers > 1
        try:
            if self.layer_by_layer and drops and isinstance(input, Tensor):
                return self._layer_by_layer(input, hx)
            return super().forward(input, hx)
        except RuntimeError as error:
            if "Batching rule" not in str(error):
                raise
            name = type(self).__name__
            raise RuntimeError(f"vmap cannot run {name}, which is torch's own: call one model at a time") from error

    def _layer_by_layer(self, input: Tensor, hx: Any) -> Any:
        """By torch's kernels. (cuDNN's dropout makes its state anew once torch's generator has been set, as it is
        before a step is recorded, and cannot in the midst of that.)"""
        kernels: dict[str, Any] = {"LSTM": _VF.lstm, "GRU": _VF.gru, "RNN_TANH": _VF.rnn_tanh}
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
                out, *state = kernels[self.mode](out, given, weights, True, 1, 0.0, True, self.bidirectional, False)
            last.append(tuple(state))
        finals = tuple(torch.cat(part) for part in zip(*last, strict=True))
        if not batched:
            out, finals = out.squeeze(1), tuple(part.squeeze(1) for part in finals)
        elif self.batch_first:
            out = out.transpose(0, 1)
        return out, finals if self.mode == "LSTM" else finals[0]

    def to_torch(self) -> nn.RNNBase:
        """torch's own layer with these weights, its second biases zero and frozen: see `one_bias`."""
        kinds: dict[str, type[nn.RNNBase]] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN_TANH": nn.RNN}
        weight = self.weight_ih_l0
        layer = kinds[self.mode](  # they name the mode themselves
            self.input_size,  # type: ignore[arg-type]
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
                self._check_addable(prefix + name, second, rest[-1])
                state_dict[first] = state_dict[first] + second
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _check_addable(self, name: str, bias: Tensor, errors: list[str]) -> None:
        """Of a GRU's second biases the last third stands inside a product with the reset gate."""
        if self.mode == "GRU" and bias[2 * self.hidden_size :].any():
            errors.append(
                f"{name}: GRU has one bias vector, and torch's second cannot be added to the first where the reset "
                "gate scales it: its last third must be zero, as eirehn.one_bias makes it"
            )

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

    >>> out, h_n = RNN(2, 20)(torch.randn(50, 4, 2))
    """


class GRU(OneBias, nn.GRU):
    """The gated recurrent unit of Cho et al. (2014): `nn.GRU` with one bias vector.

    >>> gru = GRU(2, 20)
    >>> sum(p.numel() for p in gru.parameters())
    1380
    """


class LSTM(OneBias, nn.LSTM):
    """The LSTM of the paper: `nn.LSTM` with one bias vector. States are pairs `(h, c)`.

    >>> lstm = LSTM(2, 20)
    >>> sum(p.numel() for p in lstm.parameters())
    1840
    """
