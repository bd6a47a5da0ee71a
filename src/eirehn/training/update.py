"""What a step does with its gradients, by kernels that read and write each value once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..ops.backend import chosen_backend
from ..ops.cuda import nvrtc
from ..ops.cuda.machine import Machine, machine_of
from ..ops.cuda.update import Part, Rule, build, update

if TYPE_CHECKING:
    from .modules import Task

LARGE = 1 << 20
"""Values from which on a step waits for memory. Smaller networks keep the bits of torch's own optimisers."""


class FusedUpdate:
    """The penalty, clipping, the optimiser's step and the running average of one member trained in mixed precision.

    It also keeps copies of the matrices in bfloat16 for the products, which autocast would make at every step, and
    takes the gradients of the copies, which autograd would make float32 again. Other than to rounding it does what
    the task, torch's optimiser and `Averages` do.
    """

    @classmethod
    def of(cls, task: Task, optimizer: torch.optim.Optimizer, rates: Tensor) -> FusedUpdate | None:
        """None where it is not for the training or the device. `rates` are those of the optimiser's groups, and
        behind them what an average takes of a new value."""
        machine, values = machine_of(task.device), list(task.ensemble.stacked)
        if machine is None or task.ensemble.size > 1 or task.optimisation.optimizer not in ("sgd", "adam", "adamw"):
            return None
        if task.trainer.precision != "bf16-mixed" or any(value.dtype != torch.float32 for value in values):
            return None
        if sum(value.numel() for value in values) < LARGE or chosen_backend() == "reference":
            return None
        made = cls(task, optimizer, rates, machine)
        try:
            made.build()
        except (nvrtc.CompileError, nvrtc.DriverError) as met:  # an older compiler than the device, say
            warnings.warn(f"the kernels of the update were not built; torch's are used: {met}", stacklevel=2)
            return None
        return made

    def __init__(self, task: Task, optimizer: torch.optim.Optimizer, rates: Tensor, machine: Machine) -> None:
        own, group = task.optimisation, optimizer.param_groups[0]
        self.task, self.optimizer, self.rates, self.machine = task, optimizer, rates, machine
        self.averages = own.average > 0
        adam = own.optimizer != "sgd"
        self.rule = Rule(
            adam=adam,
            decoupled=own.optimizer == "adamw",
            penalty=own.penalty,
            clip=own.clip,
            betas=group["betas"] if adam else (0.0, 0.0),
            epsilon=group["eps"] if adam else 0.0,
            weight_decay=group["weight_decay"],
        )
        values = dict(zip(task.ensemble.names, task.ensemble.stacked, strict=True))
        self.values = {name: value for name, value in values.items() if value.requires_grad}
        self.fixed = {name: value for name, value in values.items() if not value.requires_grad}
        self.lows = {name: _copy(value) for name, value in self.values.items() if value.dim() > 2}
        self.groups = {
            id(value): index for index, own in enumerate(optimizer.param_groups) for value in own["params"]
        }
        self._versions: list[int] = []
        self._settled = False
        optimizer.zero_grad()
        optimizer.step()  # of no gradients: nothing but that its schedule knows that it is in use
        if adam:
            self._remember()

    def _remember(self) -> None:
        """Adam's state, in torch's own form, where there is none yet."""
        for value in self.values.values():
            state = self.optimizer.state[value]
            if not state:
                state["step"] = torch.zeros(())
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(value), torch.zeros_like(value)
            state["step"] = state["step"].to(value.device, torch.float32)

    def build(self) -> None:
        """The kernels that all values together take; if some have no gradient, others of the same code."""
        count = len(self.task.ensemble.names) if self.averages else len(self.values)
        build(self.machine, self.rule, count, groups=len(self.optimizer.param_groups), averaged=self.averages)

    @contextmanager
    def copies(self) -> Iterator[None]:
        """Inside, products read the copies."""
        self.task.ensemble.lows = self.lows
        try:
            yield
        finally:
            self.task.ensemble.lows = {}

    @torch.no_grad()
    def refresh(self) -> None:
        """Makes the copies anew if anything but the kernels has changed a value since; those leave its version."""
        versions = [value._version for value in self.task.ensemble.stacked]
        if versions == self._versions:
            return
        values = self.task.ensemble.values()
        torch._foreach_copy_(list(self.lows.values()), [values[name] for name in self.lows])
        self._versions = versions

    def __call__(self, loss: Tensor) -> None:
        """Changes the values by the gradients of `loss`."""
        leaves = [*self.values.values(), *self.lows.values()]
        found = iter(torch.autograd.grad(loss, leaves, allow_unused=True))
        gradients, of_lows = (
            {name: gradient for name in names if (gradient := next(found)) is not None}
            for names in (self.values, self.lows)
        )
        if not self._settled:  # what no product reads as a copy is not worth one
            self.lows = {name: low for name, low in self.lows.items() if name in of_lows}
            self._settled = True
        parts = [
            self._part(name, value, gradients.get(name), of_lows.get(name)) for name, value in self.values.items()
        ]
        if self.averages:
            averages = dict(zip(self.task.ensemble.names, self.task.averages.values, strict=True))
            for name, part in zip(self.values, parts, strict=True):
                part.average = averages[name]
            parts += [Part(value, average=averages[name], group=-1) for name, value in self.fixed.items()]
        moved = [value for name, value in self.values.items() if name in gradients or name in of_lows]
        steps = [self.optimizer.state[value]["step"] for value in moved] if self.rule.adam else []
        if steps:
            torch._foreach_add_(steps, 1.0)
        update(
            self.machine,
            self.rule,
            [part for part in parts if part.group >= 0 or part.average is not None],
            self.rates,
            self.task.skipped,
            step=steps[0] if steps else None,
            share=self.task.retreats.share if self.task.retreats else None,
        )

    def _part(self, name: str, value: Tensor, gradient: Tensor | None, of_low: Tensor | None) -> Part:
        if gradient is None and of_low is None:
            return Part(value, group=-1)
        state = self.optimizer.state[value] if self.rule.adam else {}
        return Part(
            value,
            low=self.lows.get(name),
            gradient=_readable(gradient),
            low_gradient=_readable(of_low),
            first=state.get("exp_avg"),
            second=state.get("exp_avg_sq"),
            group=self.groups[id(value)],
        )


def _copy(value: Tensor) -> Tensor:
    return value.detach().bfloat16().requires_grad_()


def _readable(gradient: Tensor | None) -> Tensor | None:
    """As the kernels take it; a part of a larger tensor may begin anywhere."""
    if gradient is None:
        return None
    gradient = gradient.contiguous()
    return gradient if gradient.data_ptr() % 16 == 0 else gradient.clone()
