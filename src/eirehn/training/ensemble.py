"""Models of one architecture computed together, their running averages and their best values."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_map, tree_map_only

from ..cells.lstm import OneBias
from ..models import LanguageModel, Outcome, SequenceModel

Model = SequenceModel | LanguageModel


class Ensemble(nn.Module):
    """M models as one: each parameter is stacked along a leading axis, (M, …), and each recurrence is called once
    with an ensemble axis. torch's own RNN, GRU and LSTM, which vmap cannot run, are called once a member.
    Member m gives the result that it would give alone."""

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__()
        first = members[0]
        self.names = [name for name, _ in first.named_parameters()]
        self.stacked = nn.ParameterList(
            nn.Parameter(
                torch.stack([dict(member.named_parameters())[name].detach() for member in members]),
                requires_grad=parameter.requires_grad,
            )
            for name, parameter in first.named_parameters()
        )
        self.size = len(members)
        # In a tuple, so that torch does not register its parameters, which are on the meta device.
        self._form = (_Runner(copy.deepcopy(first).to("meta")),)

    def forward(
        self,
        x: Tensor,
        hx: Any = None,
        *,
        lengths: Tensor | None = None,
        target: Tensor | None = None,
        max_depth: int | None = None,
        with_cost: bool = False,
    ) -> Outcome:
        """The outcomes of all members, stacked, for `x` (M, B, T, X) that ends after `lengths` (M, B) steps and for
        states `hx` as an outcome has them; with a `target` (M, B, T) see `LanguageModel.run`."""
        found = self._run(x, hx, target, lengths, max_depth=max_depth, with_cost=with_cost)
        prediction, state, depth, *cost = found
        return Outcome(prediction, state, depth, cost[0] if cost else None)

    def _run(self, x: Tensor, hx: Any, target: Tensor | None, lengths: Tensor | None, **options: Any) -> Any:
        form = self._form[0].train(self.training)
        by_torch = any(isinstance(module, OneBias) for module in form.modules())
        values = {f"model.{name}": value for name, value in zip(self.names, self.stacked, strict=True)}
        # One by one where vmap cannot run the layers, or where members' batches are packed differently.
        if self.size == 1 or lengths is not None or by_torch:
            each = []
            for index, own in enumerate(_unstacked(values)):
                given = tree_map_only(Tensor, itemgetter(index), (x, hx, target))
                more = {} if lengths is None else {"lengths": lengths[index]}
                each.append(functional_call(form, own, given, options | more))
            return tree_map(lambda *parts: torch.stack(parts) if len(parts) > 1 else parts[0][None], *each)
        return vmap(
            lambda own, each, state, wanted: functional_call(form, own, (each, state, wanted), options),
            (0, 0, None if hx is None else 0, None if target is None else 0),
            randomness="different",  # with dropout each member draws its own masks
        )(values, x, hx, target)

    def member(self, index: int) -> Model:
        """A copy of member `index` as a single model."""
        model = copy.deepcopy(self._form[0].model).to_empty(device=self.stacked[0].device)
        for name, value in self.values().items():
            model.get_parameter(name).data = value[index].clone()
        return model.train(self.training)

    def values(self) -> dict[str, Tensor]:
        """The stacked values by their names in a member; not copies."""
        return {name: value.detach() for name, value in zip(self.names, self.stacked, strict=True)}

    def recurrent(self) -> list[nn.Parameter]:
        """The stacked values of the recurrent layers."""
        return [value for name, value in zip(self.names, self.stacked, strict=True) if name.startswith("body.")]

    @torch.no_grad()
    def load(self, values: Mapping[str, Tensor]) -> None:
        for name, own in zip(self.names, self.stacked, strict=True):
            own.copy_(values[name])

    @torch.no_grad()
    def add_penalty(self, penalty: float) -> None:
        """Adds to the gradients that of `penalty · ½‖v‖²` over all values v."""
        trained = [value for value in self.stacked if value.grad is not None]
        torch._foreach_add_([value.grad for value in trained], trained, alpha=penalty)

    def clip_gradients(self, norm: float) -> Tensor:
        """Scales each member's gradient down to `norm`, by its own length. Where the norm overflows, as it can
        with many inner steps, the gradient becomes zero: returns for which members, (M,)."""
        gradients = [value.grad for value in self.stacked if value.grad is not None]
        if self.size == 1:  # all of them in a few launches
            lengths = torch.stack(torch._foreach_norm(gradients)).norm()[None]
        else:
            squares = [gradient.flatten(1).square().sum(1) for gradient in gradients]
            lengths = torch.stack(squares).sum(0).sqrt()  # (M,)
        factors = (norm / (lengths + 1e-6)).clamp(max=1.0)
        if self.size == 1:
            torch._foreach_mul_(gradients, factors.squeeze(0))
        else:
            for gradient in gradients:
                gradient.mul_(_beside(factors, gradient))
        overflown: Tensor = ~lengths.isfinite()
        for gradient in gradients:  # zero times infinity is NaN
            gradient.masked_fill_(_beside(overflown, gradient), 0.0)
        return overflown


def _unstacked(values: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Each member's values. The gradient of `unbind` is one copy of all, which a single member does without."""
    parts = [[value.squeeze(0)] if len(value) == 1 else value.unbind() for value in values.values()]
    return [dict(zip(values, own, strict=True)) for own in zip(*parts, strict=True)]


def _beside(each: Tensor, stacked: Tensor) -> Tensor:
    """One number a member, (M,), in a shape that broadcasts with values (M, …)."""
    return each.view(-1, *[1] * (stacked.dim() - 1))


class _Runner(nn.Module):
    """`functional_call` calls a module's `forward`, and we need all that `run` gives."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, hx: Any, target: Tensor | None, **options: Any) -> tuple[Any, ...]:
        """The parts of an outcome that are not None: vmap returns tensors only."""
        model: Any = self.model
        outcome = model.run(x, hx, **options if target is None else {**options, "target": target})
        return tuple(outcome) if outcome.cost is not None else tuple(outcome[:3])


class Averages:
    """The running average of each value of M members, (M, …), with a `decay` per step; 0: no average. The
    decay of the first steps is smaller, so that the initial values soon lose their weight."""

    def __init__(self, decay: float, values: Iterable[Tensor]) -> None:
        self.decay = decay
        self.values = [value.detach().clone() for value in values] if decay > 0 else []
        self.steps = 0  # on the CPU: reading it from the device would synchronise

    def __bool__(self) -> bool:
        return bool(self.values)

    def place_like(self, values: Iterable[Tensor]) -> None:
        self.values = [each.to(own) for each, own in zip(self.values, values, strict=False)]

    @torch.no_grad()
    def update(self, values: Iterable[Tensor]) -> None:
        """Updates the average with the values of one more step."""
        if not self.values:
            return
        self.steps += 1
        torch._foreach_lerp_(self.values, list(values), 1 - min(self.decay, self.steps / (self.steps + 9)))

    @torch.no_grad()
    def swap(self, values: Iterable[Tensor]) -> None:
        """Swaps the averaged and the trained values."""
        for average, value in zip(self.values, values, strict=False):
            trained = value.clone()
            value.copy_(average)
            average.copy_(trained)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = list(state["values"])
        self.steps = state.get("steps", 1 << 40)  # states of version 0.1 may lack it


class Best:
    """Each member's values at its best epoch, by a score that is better when lower."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.score = torch.full((ensemble.size,), torch.inf, dtype=torch.float64)
        self.epoch = torch.full((ensemble.size,), -1)
        self.values = {name: value.clone() for name, value in ensemble.values().items()}

    def take(self, score: Tensor, epoch: int, ensemble: Ensemble, *, if_better: bool) -> None:
        """Keeps this epoch's values if it is better than the earlier ones, or always; never those with a score that
        is NaN or infinite."""
        better = score < self.score if if_better else score.isfinite()
        self.score[better] = score[better]
        self.epoch[better] = epoch
        for name, value in ensemble.values().items():
            self.values[name][better] = value[better]

    def place_like(self, ensemble: Ensemble) -> None:
        own = ensemble.values()
        self.values = {name: value.to(own[name]) for name, value in self.values.items()}
        device = ensemble.stacked[0].device
        self.score, self.epoch = self.score.to(device), self.epoch.to(device)

    def state_dict(self) -> dict[str, Any]:
        return {"score": self.score, "epoch": self.epoch, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.score, self.epoch, self.values = state["score"], state["epoch"], dict(state["values"])
