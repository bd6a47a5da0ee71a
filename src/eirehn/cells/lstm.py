"""torch's RNN, GRU and LSTM with one bias vector where torch has two, as the paper counts parameters."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch
import torch.nn.functional as F
from torch import _VF, Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map_only

from .._internal.checks import (
    boolean,
    check_layer_input,
    check_layer_state,
    check_not_exporting,
    check_pair,
    floating,
    positive_int,
    probability,
)
from .._internal.rows import Rows

Recurrent = TypeVar("Recurrent", bound=nn.RNNBase | nn.RNNCellBase)


def one_bias(module: Recurrent) -> Recurrent:
    """Sets the hidden-to-hidden biases of a torch RNN, GRU or LSTM to zero and freezes them.

    torch has two bias vectors, the paper one: what is left to train has the parameter count of the paper.
    `module.reset_parameters()` draws the frozen biases anew: call `one_bias` again after it.

    Args:
        module: a layer (`nn.RNN`, `nn.GRU`, `nn.LSTM`) or a cell (`nn.RNNCell`, …) with biases; it is changed in
            place.

    Returns:
        The same module.

    Raises:
        TypeError: if it is another kind of module.
        ValueError: if it was made with `bias=False`.

    Examples:
        >>> lstm = eirehn.one_bias(nn.LSTM(2, 20))
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
    """Base class of `RNN`, `GRU` and `LSTM`: torch's layers with a constant zero as their second bias vector.

    `load_state_dict` accepts the parameters of torch's layers, too, and adds their two biases.
    """

    layer_by_layer: bool = False
    """In training, run one layer after the other with torch's dropout between them, as a CUDA graph needs it: the
    dropout of cuDNN, which is faster with all layers at once, has a random state of its own."""

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

    @overload
    def forward(self, input: Tensor, hx: Any = None, *, reset: Tensor | None = None) -> tuple[Tensor, Any]: ...
    @overload
    def forward(
        self, input: PackedSequence, hx: Any = None, *, reset: Tensor | None = None
    ) -> tuple[PackedSequence, Any]: ...
    def forward(self, input: Tensor | PackedSequence, hx: Any = None, *, reset: Tensor | None = None) -> Any:
        """Runs the layer over a batch of sequences, by torch's kernels.

        Args:
            input: the sequences. `PackedSequence`s end at their own lengths.
            hx: initial state, for an LSTM the pair `(h, c)`. Default: zeros.
            reset: where a new episode begins, as in the `forward` of the other layers. Default: nowhere.

        Returns:
            `(output, h_n)`, for an LSTM `(output, (h_n, c_n))`.

        Shape:
            L is `num_layers`, D is 2 if bidirectional and otherwise 1, X is `input_size`, H is `hidden_size`.

            - input: `(T, B, X)`; `(B, T, X)` with `batch_first`; `(T, X)` unbatched; or a `PackedSequence`.
            - states: `(L·D, B, H)`; unbatched `(L·D, H)`.
            - reset (bool): `(T, B)`; `(B, T)` with `batch_first`; `(T,)` unbatched.
            - output: `(T, B, D·H)`; `(B, T, D·H)` with `batch_first`; `(T, D·H)` unbatched; or a `PackedSequence`.

        Examples:
            >>> out, (h_n, c_n) = eirehn.LSTM(9, 32)(torch.randn(12, 4, 9))
            >>> out.shape, h_n.shape
            (torch.Size([12, 4, 32]), torch.Size([1, 4, 32]))
        """
        self._check(input, hx)
        if reset is not None:
            return self._by_episode(input, hx, reset)
        if torch.compiler.is_exporting():
            if isinstance(input, PackedSequence):
                check_not_exporting()
            return self._layer_by_layer(input, hx)
        if self.mode == "LSTM" and isinstance(input, Tensor) and input.device.type == "cpu" and not _autocasts():
            with torch.autocast("cpu", enabled=False):
                weight: Tensor = self.weight_ih_l0  # type: ignore[assignment]  # torch sets it by name
                return self._by_torch(*tree_map_only(Tensor, lambda part: part.to(weight.dtype), (input, hx)))
        return self._by_torch(input, hx)

    if TYPE_CHECKING:  # a call has the types of `forward`
        __call__ = forward

    def _by_episode(self, input: Tensor | PackedSequence, hx: Any, reset: Tensor) -> Any:
        rows = Rows.of(input, batch_first=self.batch_first, bidirectional=self.bidirectional, reset=reset)
        if hx is not None:
            hx = tuple(map(rows.states_in, self._parts(hx)))
        if rows.episodes is None:  # only the initial state changes
            if hx is not None and not rows.batched:
                hx = tuple(part.squeeze(1) for part in hx)
            return self.forward(input, hx if hx is None or self.mode == "LSTM" else hx[0])
        packed = PackedSequence(rows.data, torch.tensor(rows.batch_sizes, device="cpu"))
        out, state = self.forward(packed, hx if hx is None or self.mode == "LSTM" else hx[0])
        state = tree_map_only(Tensor, rows.states_out, state)
        return rows.outputs(out.data), state

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

    def _layer_by_layer(self, input: Any, hx: Any) -> Any:
        """As `_by_torch`, with torch's dropout: cuDNN's creates its state anew after torch's generator has been
        set, which is done before a CUDA graph is captured, and that is not possible during the capture."""
        kernels: dict[str, Any] = {"LSTM": _VF.lstm, "GRU": _VF.gru, "RNN_TANH": _VF.rnn_tanh}
        exporting = torch.compiler.is_exporting()
        if not exporting:
            self._update_flat_weights()  # functional_call may have replaced them
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
            if layer > 0 and self.training:
                out = F.dropout(out, self.dropout)
            first = tuple(part[directions * layer : directions * (layer + 1)] for part in states)
            if exporting:
                out, *state = self._exported(out, first if self.mode == "LSTM" else first[:1], layer)
                last.append(tuple(state))
                continue
            weights = self._flat_weights[4 * directions * layer : 4 * directions * (layer + 1)]
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

    def _exported(self, x: Tensor, states: tuple[Tensor, ...], layer: int) -> list[Tensor]:
        """One layer over x (T, B, X), by the operator of exported programs: `output, h_n` and an LSTM's `c_n`."""
        kind = self.mode.removesuffix("_TANH")
        about = f'{{"kind": "{kind}", "hidden_size": {self.hidden_size}}}'
        found = []
        for direction, state in enumerate(zip(*states, strict=True)):
            end = f"l{layer}{'_reverse' * direction}"
            weights = [getattr(self, f"{name}_{end}") for name in ("weight_ih", "weight_hh", "bias_ih")]
            found.append(torch.ops.eirehn.scan(x, torch.cat(state, -1), weights, about, 1, direction == 1))
        outs, lasts, _ = zip(*found, strict=True)
        return [torch.cat(outs, -1), *torch.stack(lasts).chunk(len(states), -1)]

    def to_torch(self) -> nn.RNNBase:
        """torch's layer with copies of these weights, its second biases zero and frozen, see `one_bias`.

        Returns:
            An `nn.RNN`, `nn.GRU` or `nn.LSTM`.

        Examples:
            >>> lstm, x = eirehn.LSTM(2, 20), torch.randn(5, 1, 2)
            >>> torch.equal(lstm.to_torch()(x)[0], lstm(x)[0])
            True
        """
        kinds: dict[str, type[nn.RNNBase]] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN_TANH": nn.RNN}
        weight = self.weight_ih_l0
        layer = kinds[self.mode](
            self.input_size,  # type: ignore[arg-type]  # they name the mode themselves
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
        # torch calls this after the weights have moved or been replaced, also by functional_call.
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
        """The last third of a GRU's second biases is multiplied by the reset gate, so it cannot be added."""
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
    """Whether torch's LSTM runs under the present autocast on the CPU: it asks oneDNN for a kernel of that type,
    which a CPU without the instructions for it does not have."""
    if not torch.is_autocast_enabled("cpu") or not torch.backends.mkldnn.is_available():
        return True
    if torch.get_autocast_dtype("cpu") == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


class RNN(OneBias, nn.RNN):
    """The Elman network of the paper: `nn.RNN` with one bias vector.

    It computes `h[t] = tanh(W_ih x[t] + b + W_hh h[t-1])`.
    Call it as `layer(input, hx=None, *, reset=None)`: it returns `output, h_n`; `hx`, the initial state, is zero by
    default; `reset` says where a new episode begins, with the state set back to zero.

    Args:
        input_size: features of the input at a time step.
        hidden_size: units of a layer.
        num_layers: layers stacked on each other. Default: 1.
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

    Examples:
        >>> layer = eirehn.RNN(2, 20)
        >>> out, h_n = layer(torch.randn(50, 4, 2))
        >>> out.shape, h_n.shape
        (torch.Size([50, 4, 20]), torch.Size([1, 4, 20]))
        >>> sum(p.numel() for p in layer.parameters())
        460
    """


class GRU(OneBias, nn.GRU):
    """The gated recurrent unit of Cho et al. (2014): `nn.GRU` with one bias vector.

    The equations are those of `nn.GRU` with `b_hh = 0`.
    Call it as `layer(input, hx=None, *, reset=None)`: it returns `output, h_n`; `hx`, the initial state, is zero by
    default; `reset` says where a new episode begins, with the state set back to zero.

    Args:
        input_size: features of the input at a time step.
        hidden_size: units of a layer.
        num_layers: layers stacked on each other. Default: 1.
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

    Examples:
        >>> layer = eirehn.GRU(2, 20)
        >>> out, h_n = layer(torch.randn(50, 4, 2))
        >>> out.shape, h_n.shape
        (torch.Size([50, 4, 20]), torch.Size([1, 4, 20]))
        >>> sum(p.numel() for p in layer.parameters())
        1380
    """


class LSTM(OneBias, nn.LSTM):
    """The LSTM of the paper: `nn.LSTM` with one bias vector.

    The equations are those of `nn.LSTM` with `b_hh = 0`.
    Call it as `layer(input, hx=None, *, reset=None)`: it returns `output, (h_n, c_n)`; `hx`, the initial state
    `(h, c)`, is zero by default; `reset` says where a new episode begins, with the state set back to zero.

    Args:
        input_size: features of the input at a time step.
        hidden_size: units of a layer.
        num_layers: layers stacked on each other. Default: 1.
        batch_first: whether input and output are `(B, T, ·)` rather than `(T, B, ·)`. Default: `False`.
        dropout: probability of dropout on the outputs of each layer but the last. Default: 0.
        bidirectional: whether each layer also reads the sequence backward. Default: `False`.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        L is `num_layers`, D is 2 if bidirectional and otherwise 1, X is `input_size`, H is `hidden_size`.

        - input: `(T, B, X)`; `(B, T, X)` with `batch_first`; `(T, X)` unbatched; or a `PackedSequence`.
        - states h_n and c_n: `(L·D, B, H)`; unbatched `(L·D, H)`.
        - output: `(T, B, D·H)`; `(B, T, D·H)` with `batch_first`; `(T, D·H)` unbatched; or a `PackedSequence`.

    Examples:
        >>> layer = eirehn.LSTM(2, 20)
        >>> out, (h_n, c_n) = layer(torch.randn(50, 4, 2))
        >>> out.shape, h_n.shape
        (torch.Size([50, 4, 20]), torch.Size([1, 4, 20]))
        >>> sum(p.numel() for p in layer.parameters())
        1840
    """
