"""Models of sequences, for regression and classification."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .._internal.checks import positive_int
from ..data.dataset import Scaling
from .body import Outcome, build_body, run_body
from .body import output_size as body_size
from .config import SequenceNetwork


class SequenceModel(nn.Module):
    """A recurrent network with a linear head, for regression or classification of sequences.

    It predicts at every time step or, with `last`, once for a sequence. `eirehn.load` returns such models.

    Args:
        network: the recurrent layers.
        input_size: features of the input at a time step.
        output_size: numbers to predict, or classes, whose logits are returned.
        last: whether there is one prediction for a sequence, made from its last output or the mean of all, as
            `network.pooling` says. Default: `False`.
        scaling: scales inputs and predictions, so that the model takes and gives values in the units of the data.
            Default: none.

    Attributes:
        classes: the names of the classes, in the order of the outputs; empty if they are not known.

    Shape:
        - x: `(B, T, input_size)`.
        - prediction: `(B, T, output_size)`, or `(B, output_size)` with `last`.

    Examples:
        >>> from eirehn.models import SequenceModel, SequenceNetwork
        >>> network = SequenceNetwork("EIREHN", hidden_size=20, max_depth=5)
        >>> model = SequenceModel(network, input_size=2, output_size=3, last=True)
        >>> model(torch.zeros(8, 20, 2)).shape
        torch.Size([8, 3])
    """

    def __init__(
        self,
        network: SequenceNetwork,
        input_size: int,
        output_size: int,
        *,
        last: bool = False,
        scaling: Scaling | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.input_size = positive_int("input_size", input_size)
        self.output_size = positive_int("output_size", output_size)
        self.last = last
        self.scaling = scaling
        self.classes: tuple[Any, ...] = ()
        self.body = build_body(network, input_size)
        self.head = nn.Linear(body_size(network), output_size)

    def forward(
        self, x: Tensor, hx: Any = None, *, lengths: Tensor | None = None, max_depth: int | None = None
    ) -> Tensor:
        """Predicts.

        Args:
            x: the sequences.
            hx: initial state of the recurrent layers, as their `h_n`. Default: zeros.
            lengths: number of time steps of each sequence, if they are padded at their ends; the padding is not
                read, and predictions there have no meaning. Default: all steps.
            max_depth: most inner steps of a time step in this call. Default: the network's own.

        Returns:
            Numbers, or the logits of the classes.

        Shape:
            - x: `(B, T, input_size)`; lengths: `(B,)`.
            - prediction: `(B, T, output_size)`, or `(B, output_size)` with `last`.

        Examples:
            >>> from eirehn.models import SequenceModel, SequenceNetwork
            >>> model = SequenceModel(SequenceNetwork("SREHN"), input_size=2, output_size=3, last=True)
            >>> model(torch.zeros(8, 20, 2), lengths=torch.tensor([20, 7, 3, 1, 9, 20, 2, 5]), max_depth=2).shape
            torch.Size([8, 3])
        """
        return self.run(x, hx, lengths=lengths, max_depth=max_depth).prediction

    def run(
        self,
        x: Tensor,
        hx: Any = None,
        *,
        lengths: Tensor | None = None,
        max_depth: int | None = None,
        with_cost: bool = False,
    ) -> Outcome:
        """Predicts, and returns the final state and the depth, too.

        Args:
            x: as for `forward`.
            hx: as for `forward`. Default: zeros.
            lengths: as for `forward`. Default: all steps.
            max_depth: as for `forward`. Default: the network's own.
            with_cost: whether to return the differentiable cost of depth, too. Default: `False`.

        Returns:
            An `Outcome`, whose depth and cost are 0 after the end of a sequence.

        Shape:
            - x: `(B, T, input_size)`; lengths: `(B,)`.
            - prediction: `(B, T, output_size)`, or `(B, output_size)` with `last`.
            - depth and cost: `(L·D, B, T)`.

        Examples:
            >>> from eirehn.models import SequenceModel, SequenceNetwork
            >>> model = SequenceModel(SequenceNetwork("SREHN", max_depth=4), input_size=2, output_size=2)
            >>> outcome = model.run(torch.zeros(8, 20, 2), with_cost=True)
            >>> outcome.depth.shape, outcome.cost.shape
            (torch.Size([1, 8, 20]), torch.Size([1, 8, 20]))
        """
        if self.scaling is not None:
            x = self.scaling.inputs(x, self.head.weight)
        given = x if lengths is None else pack_padded_sequence(x, lengths.cpu(), True, enforce_sorted=False)
        out, state, depth, cost = run_body(self.body, given, hx, max_depth=max_depth, with_cost=with_cost)
        if lengths is not None:  # packing stops at the longest
            out, _ = pad_packed_sequence(out, True, total_length=x.size(1))
            depth = _padded(depth, x.size(1))
            cost = None if cost is None else _padded(cost, x.size(1))
        prediction = self.head(self._pooled(out, lengths) if self.last else out)
        if self.scaling is not None:
            prediction = self.scaling.outputs(prediction)
        return Outcome(prediction, state, depth, cost)

    def _pooled(self, out: Tensor, lengths: Tensor | None) -> Tensor:
        """The mean of `out` (B, T, …) over time, or the last output of each direction."""
        if self.network.pooling == "mean":  # packed sequences are followed by zeros
            return out.mean(1) if lengths is None else out.sum(1) / lengths.to(out.device)[:, None]
        if lengths is None:
            last = out[:, -1]
        else:
            last = out[torch.arange(out.size(0), device=out.device), lengths.to(out.device) - 1]
        if not self.network.bidirectional:
            return last
        return torch.cat([last.chunk(2, -1)[0], out[:, 0].chunk(2, -1)[1]], -1)


def _padded(values: Tensor, steps: int) -> Tensor:
    """(L, B, T) with zeros up to `steps`."""
    return nn.functional.pad(values, (0, steps - values.size(-1)))
