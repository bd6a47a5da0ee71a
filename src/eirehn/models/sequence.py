"""Models of sequences, for regression and classification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_map

from .._internal.checks import check_not_exporting, positive_int
from ..data.dataset import Scaling, check_single, padded
from .body import Outcome, build_body, run_body
from .body import output_size as body_size
from .config import SequenceNetwork
from .hub import Pretrained
from .inputs import batches, check_shape, checked_lengths, read_cases

if TYPE_CHECKING:  # keeps `import eirehn` fast
    import numpy.typing as npt

    from .inputs import Cases


class SequenceModel(Pretrained, nn.Module):
    """A recurrent network with a linear head, for regression or classification of sequences.

    It predicts at every time step or, with `last`, once for a sequence. `eirehn.load` returns such models.
    `predict` returns classes or numbers as NumPy arrays; calling the model returns tensors, with gradients.

    Args:
        network: the recurrent layers.
        input_size: features of the input at a time step.
        output_size: numbers to predict, or classes, whose logits are returned.
        last: whether there is one prediction for a sequence, made from its last output or the mean of all, as
            `network.pooling` says. Default: `False`.
        scaling: scales inputs and predictions, so that the model takes and gives values in the units of the data.
            Default: none.

    Attributes:
        classes: the names of the classes, in the order of the outputs; empty if it predicts numbers.
        signals: the names of the channels of the inputs; empty if they are not known.
        results: what is known of the training: seed, recipe, metric, its value on test data, depth; None for a
            model that is not from `eirehn.load`.

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
        self.signals: tuple[str, ...] = ()
        self.body = build_body(network, input_size)
        self.head = nn.Linear(body_size(network), output_size)

    def forward(self, x: Any, hx: Any = None, *, lengths: Any = None, max_depth: int | None = None) -> Tensor:
        """Predicts.

        Args:
            x: the sequences: a tensor, a NumPy array, or a list of sequences `(T, input_size)` of any lengths,
                which are padded.
            hx: initial state of the recurrent layers, as their `h_n`. Default: zeros.
            lengths: number of time steps of each sequence, if they are padded at their ends: a tensor, an array or
                a list. The padding is not read, and predictions there have no meaning. Default: all steps.
            max_depth: most inner steps of a time step in this call. Default: the network's own.

        Returns:
            Numbers, or the logits of the classes.

        Shape:
            - x: `(B, T, input_size)`, or `(T, input_size)` unbatched; lengths: `(B,)`.
            - prediction: `(B, T, output_size)`, or `(B, output_size)` with `last`; without B if unbatched.

        Examples:
            >>> from eirehn.models import SequenceModel, SequenceNetwork
            >>> model = SequenceModel(SequenceNetwork("SREHN"), input_size=2, output_size=3, last=True)
            >>> model(torch.zeros(8, 20, 2), lengths=torch.tensor([20, 7, 3, 1, 9, 20, 2, 5]), max_depth=2).shape
            torch.Size([8, 3])
        """
        return self.run(x, hx, lengths=lengths, max_depth=max_depth).prediction

    def run(
        self,
        x: Any,
        hx: Any = None,
        *,
        lengths: Any = None,
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
            - x: `(B, T, input_size)`, or `(T, input_size)` unbatched; lengths: `(B,)`.
            - prediction: `(B, T, output_size)`, or `(B, output_size)` with `last`; without B if unbatched.
            - depth and cost: `(L·D, B, T)`; `(L·D, T)` if unbatched.

        Examples:
            >>> from eirehn.models import SequenceModel, SequenceNetwork
            >>> model = SequenceModel(SequenceNetwork("SREHN", max_depth=4), input_size=2, output_size=2)
            >>> outcome = model.run(torch.zeros(8, 20, 2), with_cost=True)
            >>> outcome.depth.shape, outcome.cost.shape
            (torch.Size([1, 8, 20]), torch.Size([1, 8, 20]))
        """
        if not isinstance(x, Tensor):
            x, lengths = self._tensors(x, lengths)
        check_shape(x.shape, self.input_size, self.signals)
        if x.dim() == 2:
            if lengths is not None:
                raise ValueError("lengths are for a batch of sequences, and x is one sequence (T, X)")
            state = None if hx is None else tree_map(lambda part: part.unsqueeze(1), hx)
            one = self.run(x.unsqueeze(0), state, max_depth=max_depth, with_cost=with_cost)
            prediction, state, depth, cost = one
            state = tree_map(lambda part: part[:, 0], state)
            return Outcome(prediction[0], state, depth[:, 0], None if cost is None else cost[:, 0])
        if lengths is not None:
            check_not_exporting()
            lengths = checked_lengths(lengths, *x.shape[:2])
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

    def predict(self, x: Any, lengths: Any = None, *, max_depth: int | None = None) -> Any:
        """Predicts the class of each sequence, or its numbers in the units of the data, without gradients.

        Args:
            x: the sequences: a tensor or NumPy array, or a list of sequences of any lengths, or one sequence. They
                are predicted in batches, so their number may be large.
            lengths: number of time steps of each sequence, if they are padded at their ends: a tensor, an array or
                a list. Default: all steps.
            max_depth: most inner steps of a time step. Default: the network's own.

        Returns:
            NumPy arrays: the most likely class of each sequence, one of `classes`, or numbers. Predictions at every
            time step are a list of arrays for a list of sequences or with `lengths`.

        Shape:
            - x: `(B, T, input_size)`, a list of B sequences `(T, input_size)`, or one sequence `(T, input_size)`.
            - classes: `(B,)` with `last`, otherwise `(B, T)`; without B for one sequence.
            - numbers: `(B, output_size)` with `last`, `(B,)` if it is one, otherwise `(B, T, output_size)`; without
              B for one sequence.

        Examples:
            >>> from eirehn.models import SequenceModel, SequenceNetwork
            >>> model = SequenceModel(SequenceNetwork("SREHN"), input_size=3, output_size=2, last=True)
            >>> model.classes = ("rest", "walk")
            >>> model.predict([np.zeros((20, 3)), np.zeros((7, 3))]).shape
            (2,)
            >>> str(model.predict(np.zeros((20, 3)))) in model.classes
            True
        """
        if self.classes:
            names = np.asarray(self.classes)
            return self._each(x, lengths, max_depth, lambda each: names[_array(each.prediction).argmax(-1)])
        alone = self.last and self.output_size == 1
        return self._each(
            x, lengths, max_depth, lambda each: _array(each.prediction[:, 0] if alone else each.prediction)
        )

    def predict_proba(self, x: Any, lengths: Any = None, *, max_depth: int | None = None) -> Any:
        """Predicts the probability of each class, without gradients.

        Args:
            x: as for `predict`.
            lengths: as for `predict`. Default: all steps.
            max_depth: most inner steps of a time step. Default: the network's own.

        Returns:
            Probabilities as NumPy arrays, in the order of `classes`.

        Raises:
            ValueError: if the model does not predict classes.

        Shape:
            - x: `(B, T, input_size)`, a list of B sequences `(T, input_size)`, or one sequence `(T, input_size)`.
            - probabilities: `(B, output_size)` with `last`, otherwise `(B, T, output_size)`; without B for one
              sequence.

        Examples:
            >>> from eirehn.models import SequenceModel, SequenceNetwork
            >>> model = SequenceModel(SequenceNetwork("SREHN"), input_size=3, output_size=2, last=True)
            >>> model.classes = ("rest", "walk")
            >>> model.predict_proba(np.zeros((8, 20, 3))).shape
            (8, 2)
        """
        if not self.classes:
            raise ValueError("predict_proba is for models that predict classes; this one predicts numbers")
        return self._each(x, lengths, max_depth, lambda each: _array(each.prediction.double().softmax(-1)))

    def depths(self, x: Any, lengths: Any = None, *, max_depth: int | None = None) -> Any:
        """Returns the number of inner steps taken at each time step, the mean over layers and directions.

        Args:
            x: as for `predict`.
            lengths: as for `predict`. Default: all steps.
            max_depth: most inner steps of a time step. Default: the network's own.

        Returns:
            A NumPy array, or a list of arrays `(T,)` for a list of sequences or with `lengths`.

        Shape:
            - x: `(B, T, input_size)`, a list of B sequences `(T, input_size)`, or one sequence `(T, input_size)`.
            - depths: `(B, T)`; `(T,)` for one sequence.

        Examples:
            >>> from eirehn.models import SequenceModel, SequenceNetwork
            >>> model = SequenceModel(SequenceNetwork("SREHN"), input_size=3, output_size=2, last=True)
            >>> model.depths(np.zeros((8, 20, 3)), max_depth=1).mean()
            np.float64(1.0)
        """
        return self._each(x, lengths, max_depth, lambda each: _array(each.depth.double().mean(0)), steps=True)

    def _each(
        self,
        x: Any,
        lengths: Any,
        max_depth: int | None,
        change: Callable[[Outcome], npt.NDArray[Any]],
        *,
        steps: bool = False,
    ) -> Any:
        """What `change` makes of the outcomes of all sequences, in evaluation mode: (B, …), or (B, T, …) with
        `steps` and for a model that predicts at every time step."""
        cases, batched = read_cases(x, lengths, self.input_size, self.signals)
        training, found = self.training, []
        self.eval()
        try:
            for (outcome,), ends in outcomes([self], cases, max_depth):
                values: Any = change(outcome)
                if ends is not None and (steps or not self.last):
                    values = [row[:end] for row, end in zip(values, ends.tolist(), strict=True)]
                found += list(values)
        finally:
            self.train(training)
        if not batched:
            return found[0]
        return found if isinstance(cases, list) and (steps or not self.last) else np.stack(found)

    def _tensors(self, x: Any, lengths: Any) -> tuple[Tensor, Any]:
        """Arrays and lists as a tensor for this model, and lengths."""
        cases, batched = read_cases(x, lengths, self.input_size, self.signals)
        if isinstance(cases, list):
            values, lengths = padded(cases, np.float64)
        else:
            values = torch.from_numpy(np.array(cases if batched else cases[0]))
        weight = self.head.weight
        return values.to(weight.device, weight.dtype if self.scaling is None else values.dtype), lengths

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


def outcomes(
    models: Sequence[SequenceModel], cases: Cases, max_depth: int | None = None, *, name: str = "x"
) -> Iterator[tuple[list[Outcome], Tensor | None]]:
    """The outcomes of models with one scaling for sequences called `name`, batch by batch, without gradients; and
    the lengths of the sequences (B,) if `cases` is a list."""
    scaling, weight = models[0].scaling, models[0].head.weight
    for x, lengths in batches(cases):
        check_single(x.float() if scaling is None else scaling.inputs(x, torch.empty(0)), name)
        here = x.to(weight.device, weight.dtype if scaling is None else x.dtype)
        with torch.no_grad():
            yield [model.run(here, lengths=lengths, max_depth=max_depth) for model in models], lengths


def _array(values: Tensor) -> npt.NDArray[np.float64]:
    return values.double().cpu().numpy()


def _padded(values: Tensor, steps: int) -> Tensor:
    """(L, B, T) with zeros up to `steps`."""
    return nn.functional.pad(values, (0, steps - values.size(-1)))
