"""Training steps recorded as CUDA graphs and replayed: one launch instead of hundreds."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from .optimizers import FullSOAP

if TYPE_CHECKING:
    from .task import Task


class Recorded(NamedTuple):
    graph: torch.cuda.CUDAGraph
    given: list[Any]  # inputs of the step: static tensors, and constants
    carried: Any  # static tensors for the states that the next step starts from


class Captured:
    """Steps of `task` on a GPU: the batch is copied to static tensors and the graph replayed.

    There is a graph for each shape of a batch and its carried states, such as a smaller last batch, and for
    each cap on depth.
    Recording does not change the training's state, so a resumed training is bitwise equal to one that was never
    stopped.
    """

    LIMIT = 24  # graphs; batches of other shapes are run eagerly

    def __init__(self, task: Task, optimizer: torch.optim.Optimizer) -> None:
        self.task, self.optimizer = task, optimizer
        self.recorded: dict[Any, Recorded] = {}
        self.failed = False  # whether recording has failed: it is not tried again
        # float32 is what torch's optimisers read from the device, whatever the parameters are.
        self.rates = torch.zeros(len(optimizer.param_groups), device=task.device).unbind()
        if isinstance(optimizer, FullSOAP):
            optimizer.recorded = True

    @cached_property
    def stream(self) -> torch.cuda.Stream:
        """The side stream for all that is not replayed: kept autograd nodes must stay on one stream."""
        return torch.cuda.Stream(self.task.device)

    def __call__(self, batch: Any) -> None:
        """One training step."""
        for rate, group in zip(self.rates, self.optimizer.param_groups, strict=True):
            rate.fill_(group["lr"])
        if isinstance(self.optimizer, FullSOAP):
            self.optimizer.before_step()
        self._step(batch)
        if isinstance(self.optimizer, FullSOAP):
            self.optimizer.after_step()

    def _step(self, batch: Any) -> None:
        leaves, structure = tree_flatten((batch, self.task.carried))
        form = (self.task.stop, structure, *map(_form, leaves))
        if form not in self.recorded and not self.failed and len(self.recorded) < self.LIMIT:
            self._record(form, leaves, structure)
        if form not in self.recorded:
            with self._beside():
                self._compute(batch)
            return
        graph, given, carried = self.recorded[form]
        for place, leaf in zip(given, leaves, strict=True):
            if isinstance(place, Tensor):
                place.copy_(leaf)
        graph.replay()
        self.task.carried = carried

    def _record(self, form: Any, leaves: list[Any], structure: Any) -> None:
        """Records the step of this form. If that fails, the training continues without graphs."""
        given = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        batch, carried = tree_unflatten(given, structure)
        before, self.task.carried = self.task.carried, carried
        self._warm_up(batch)
        self.task.carried = carried
        try:
            graph = self._capture(batch)
        except RuntimeError as error:
            self.failed, self.task.carried = True, before
            warnings.warn(
                "the training step cannot be recorded as a CUDA graph and is launched operation by operation, "
                f"which is slower: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
        else:
            self.recorded[form] = Recorded(graph, given, self.task.carried)
            self.task.carried = before

    def _warm_up(self, batch: Any) -> None:
        """Warm-up: kernels are compiled and buffers made at the first call."""
        with _unchanged(self.task, self.optimizer), self._beside():
            self._compute(batch)

    def _capture(self, batch: Any) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        pool = next((each.graph.pool() for each in self.recorded.values()), None)
        # Only calls of this thread can invalidate it, not those of loggers' or users' threads.
        recording = torch.cuda.graph(graph, pool, self.stream, capture_error_mode="thread_local")
        with _generator_kept(self.task.device), _garbage_kept(), recording:
            self._compute(batch, capturable=True)
        return graph

    @contextmanager
    def _beside(self) -> Iterator[None]:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)

    def _compute(self, batch: Any, **options: Any) -> None:
        """The whole of Lightning's step, without synchronising with the host."""
        task = self.task
        with task.trainer.precision_plugin.train_step_context():
            loss = task.loss(batch)
        values = [value for value in task.parameters() if value.requires_grad]
        # Not backward(), which adds to the gradients on the stream where a value was first used.
        gradients = torch.autograd.grad(loss, values, allow_unused=True)
        for value, gradient in zip(values, gradients, strict=True):
            value.grad = None if gradient is None else gradient.contiguous()
        task.configure_gradient_clipping()
        with self._options(fused=True, **options):
            self.optimizer.step()

    @contextmanager
    def _options(self, **options: Any) -> Iterator[None]:
        """The optimiser with its learning rates on the device and these options, where it has them."""
        groups = self.optimizer.param_groups
        before = [dict(group) for group in groups]
        for group, rate in zip(groups, self.rates, strict=True):
            group.update(lr=rate, **{name: value for name, value in options.items() if name in group})
        try:
            yield
        finally:
            for group, old in zip(groups, before, strict=True):
                group.update(old)


@contextmanager
def _generator_kept(device: torch.device) -> Iterator[None]:
    """A failed capture leaves torch's generator in recording mode, where every later draw is an error: its earlier
    state is restored."""
    generator = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    before = generator.clone_state()
    try:
        yield
    except BaseException:
        generator.graphsafe_set_state(before)
        raise


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Disables Python's garbage collector: freeing memory of earlier graphs would invalidate the capture."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _form(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf


@contextmanager
def _unchanged(task: Task, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Restores what a step changes: values, averages, sums, the optimiser's state and the generators."""
    tensors = [*task.parameters(), *task.averages.values, task.sums, task.skipped, *_state(optimizer)]
    before = [each.detach().clone() for each in tensors]
    with torch.random.fork_rng([task.device]), torch.no_grad():
        with torch.enable_grad():
            yield
        for each, old in zip(tensors, before, strict=True):
            each.copy_(old)
        known = set(map(id, tensors))
        for each in _state(optimizer):
            if id(each) not in known:  # created by its first step, from zeros
                each.zero_()


def _state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [each for own in optimizer.state.values() for each in own.values() if isinstance(each, Tensor)]
