"""The Lightning module: an ensemble of models with different seeds, each trained as if alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, distributed
from torch.optim.lr_scheduler import LambdaLR
from torch.utils._pytree import tree_map_only

from ..data.dataset import Split
from ..models import Outcome
from .config import Optimisation
from .cuda_graph import Captured
from .ensemble import Averages, Best, Ensemble, Model
from .optimizers import early_stop, make_optimizer, schedule


class Task(pl.LightningModule):
    """Trains M members at once, each as if alone, and keeps the values of each one's best epoch.

    A task defines the loss and the metric of each sequence; `sign` is 1 where a lower metric is better.
    """

    metric: str
    sign: int = 1
    capture: bool = True  # record the step as a CUDA graph, where it runs on one GPU
    by_target: bool = False  # in training, models predict only the target, which they are given (to save memory)

    def __init__(self, members: Sequence[Model], optimisation: Optimisation) -> None:
        super().__init__()
        self.ensemble = Ensemble(members)
        self.optimisation = optimisation
        self.max_depth = members[0].network.max_depth
        self.carried: Any = None  # the states that a batch starts from, where the state is carried
        self.captured: Captured | None = None
        self.stop: int | None = None  # the cap on inner steps in this training step
        self.epoch_metrics: dict[str, Tensor] = {}  # (M,) each
        # Not buffers: those follow the weights' type, and several processes would overwrite each other's.
        self.best = Best(self.ensemble)
        self.sums = torch.zeros(2, self.ensemble.size, dtype=torch.float64)  # this epoch's losses and sequences
        self.skipped = torch.zeros(self.ensemble.size, dtype=torch.float64)  # its steps with non-finite gradients
        self.stopped = torch.full((self.ensemble.size,), -1)  # the last epoch of a member that has stopped, or -1
        self.averages = Averages(optimisation.average, self.ensemble.stacked)

    def start_from(self, values: Mapping[str, Tensor]) -> None:
        """Sets the initial values, also of the averages."""
        self.ensemble.load(values)
        self.averages = Averages(self.optimisation.average, self.ensemble.stacked)
        self.best = Best(self.ensemble)

    def keep_state(self, state: Any) -> None:
        """Keeps the state for the next batch, where it is carried."""

    def metric_of(self, mean: Tensor) -> Tensor:
        """The metric from the mean over all summands."""
        return mean

    def scale(self, target: Tensor) -> int:
        """The factor on the loss in training."""
        return 1

    @abstractmethod
    def errors(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The training loss, mean per member, (M,)."""

    @abstractmethod
    def totals(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, int]:
        """The metric summed per member, (M,), and the number of its summands."""

    def calibration_sums(self, prediction: Tensor, target: Tensor) -> list[Tensor]:
        """Sums over a batch of validation data for `calibrate`, (M,) each."""
        return []

    def calibrate(self, sums: Tensor) -> None:
        """Sets the temperatures of the next epoch from those sums, (K, M)."""

    def configure_optimizers(self) -> Any:
        optimizer = make_optimizer(self.optimisation, self.parameters(), self.ensemble.recurrent())
        # Not Lightning's estimate, which loads the data before the position is restored.
        steps = self.optimisation.epochs * len(self.trainer.datamodule.train_dataloader())  # type: ignore[attr-defined]
        scheduler = LambdaLR(optimizer, schedule(self.optimisation, steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_start(self) -> None:
        self.sums, self.skipped = self.sums.to(self.device), self.skipped.to(self.device)
        self.averages.place_like(self.ensemble.stacked)
        self.best.place_like(self.ensemble)
        self.carried = tree_map_only(Tensor, lambda part: part.to(self.device), self.carried)
        self._set_rate()
        if self._can_capture():
            self.captured = Captured(self, self.optimizers(use_pl_optimizer=False))  # type: ignore[arg-type]  # one

    def _set_rate(self) -> None:
        """Sets the learning rate by this recipe: that of a checkpoint may be of another."""
        scheduler = self.lr_schedulers()
        assert isinstance(scheduler, LambdaLR)
        for group, base, factor in zip(
            scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
        ):
            group["lr"] = base * factor(scheduler.last_epoch)

    def _can_capture(self) -> bool:
        splits = getattr(self.trainer.datamodule, "splits", None)  # type: ignore[attr-defined]
        # Batches with lengths are packed on the host, which a recorded step cannot repeat.
        ragged = splits is not None and splits.train.lengths is not None
        return self.capture and not ragged and self.device.type == "cuda" and self.trainer.world_size == 1

    def teardown(self, stage: str) -> None:
        self.captured = None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["task"] = {
            "sums": self.sums,
            "skipped": self.skipped,
            "stopped": self.stopped,
            "averages": self.averages.state_dict(),
            "best": self.best.state_dict(),
            "carried": self.carried,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = checkpoint["task"]
        self.sums, self.carried = state["sums"], state["carried"]
        # States of version 0.1 have other names, or lack some.
        self.skipped = state.get("skipped", state.get("left_out", self.skipped))
        self.stopped = state.get("stopped", self.stopped)
        self.averages.load_state_dict(state["averages"])
        self.best.load_state_dict(state["best"])

    def on_train_epoch_start(self) -> None:
        self.sums.zero_()
        self.skipped.zero_()
        self.carried = None

    def training_step(self, batch: tuple[Any, ...], batch_index: int) -> Tensor | None:
        if self.optimisation.early:
            self.stop = early_stop(self.optimisation, self.global_step, self.max_depth)
        if self.captured is None:
            return self.loss(batch)
        self._batch = batch  # for optimizer_step, which is not inside Lightning's autocast
        return None

    def loss(self, batch: tuple[Any, ...]) -> Tensor:
        """The loss of a step, summed over the members."""
        x: Tensor = batch[0]
        target: Tensor = batch[1]
        lengths: Tensor | None = batch[2] if len(batch) > 3 else None  # (M, B)
        share: float = batch[-1]
        known = {"target": target} if self.by_target else {}
        options: dict[str, Any] = {
            "max_depth": self.stop,
            "with_cost": self.optimisation.depth_penalty > 0,
            **known,
        }
        outcome = self.ensemble(x, self.carried, lengths=lengths, **options)
        self.keep_state(outcome.state)
        errors = self.errors(outcome.prediction, target)  # (M,)
        rows = x.size(1) if share > 0 else 0  # weight 0 where the process has no sequence of its own
        with torch.no_grad():
            self.sums += torch.stack([errors.double() * rows, torch.full_like(self.sums[1], rows)])
        if outcome.cost is not None:
            beyond = mean_over_steps(F.relu(outcome.cost - 2), lengths)  # a cost of 2 is the most of one inner step
            errors = errors + self.optimisation.depth_penalty * over_processes(errors, share) * beyond
        # A member's gradient depends on its own summand alone.
        return errors.sum() * (share * self.scale(target))

    def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
        if self.optimisation.clip is not None:
            self.skipped += self.ensemble.clip_gradients(self.optimisation.clip)

    def optimizer_step(self, epoch: int, batch_index: int, optimizer: Any, closure: Any = None) -> None:
        with self._stopped_held():
            if self.captured is None:
                super().optimizer_step(epoch, batch_index, optimizer, closure)
            else:
                closure()  # calls training_step; there is no loss to backpropagate
                self.captured(self._batch)
            self.averages.update(self.ensemble.stacked)

    @contextmanager
    def _stopped_held(self) -> Iterator[None]:
        """Members that have stopped keep their values and averages, which weight decay would change."""
        stopped = self.stopped >= 0
        if not stopped.any():
            yield
            return
        values = [*self.ensemble.stacked, *self.averages.values]
        with torch.no_grad():
            held = [value[stopped].clone() for value in values]
            with torch.enable_grad():
                yield
            for value, own in zip(values, held, strict=True):
                value[stopped] = own

    def on_validation_epoch_start(self) -> None:
        self._totals: list[Tensor] = []
        self._reading, self.carried = self.carried, None
        self.averages.swap(self.ensemble.stacked)

    def validation_step(self, batch: Split, batch_index: int) -> None:
        self._totals.append(self.evaluate(*batch, calibrating=True))

    def evaluate(
        self,
        x: Tensor,
        target: Tensor,
        lengths: Tensor | None = None,
        *,
        max_depth: int | None = None,
        calibrating: bool = False,
    ) -> Tensor:
        """Sums over a batch that all members read, (4, M): of the metric, its summands, the depth, the time steps;
        and when `calibrating` those of the calibration."""
        x, target, lengths = Split(x, target, lengths).map(
            lambda each: each.expand(self.ensemble.size, *each.shape)
        )
        outcome: Outcome = self.ensemble(x, self.carried, lengths=lengths, max_depth=max_depth)
        self.keep_state(outcome.state)
        total, count = self.totals(outcome.prediction, target)
        cases = x.size(1) * x.size(2) if lengths is None else int(lengths[0].sum())
        depth = mean_over_steps(outcome.depth.double(), lengths) * cases
        sums = [total, torch.full_like(total, count), depth, torch.full_like(total, cases)]
        return torch.stack(sums + (self.calibration_sums(outcome.prediction, target) if calibrating else []))

    @torch.no_grad()
    def measure(
        self, parts: Iterable[Split], values: Mapping[str, Tensor], *, max_depth: int | None = None
    ) -> tuple[list[float], list[float]]:
        """Each member's metric and mean depth with these values."""
        own = {name: value.clone() for name, value in self.ensemble.values().items()}
        self.ensemble.load(values)
        self.carried = None
        self.eval()
        like = self.ensemble.stacked[0]

        def place(each: Tensor) -> Tensor:
            return each.to(like if each.is_floating_point() else like.device)

        sums = [self.evaluate(*Split(*part).map(place), max_depth=max_depth) for part in parts]
        self.ensemble.load(own)
        total, count, depth, cases = torch.stack(sums).sum(0)
        return self.metric_of(total / count).tolist(), (depth / cases).tolist()

    @torch.no_grad()
    def on_validation_epoch_end(self) -> None:
        total, count, depth, cases, *calibration = self._sum_over_processes(torch.stack(self._totals).sum(0))
        self._totals = []
        self.carried = self._reading
        metric = self.metric_of(total / count)
        self._set_metrics(self._train_loss(), metric, depth / cases)
        self._end_epoch(self.sign * metric, calibration, if_better=True)

    def _end_epoch(self, score: Tensor, calibration: Sequence[Tensor] = (), *, if_better: bool) -> None:
        """Keeps the averaged weights, which are in use, if they are best, and swaps them back. Members stop if all
        their steps in this epoch were skipped or their weights are not finite."""
        score = score.masked_fill((self.stopped >= 0).to(score.device), torch.nan)
        self.best.take(score, self.current_epoch, self.ensemble, if_better=if_better)
        if calibration:
            self.calibrate(torch.stack(list(calibration)))
        self.averages.swap(self.ensemble.stacked)
        broken = self.skipped >= self.trainer.num_training_batches  # (M,)
        for value in self.ensemble.stacked:
            broken = broken | ~value.reshape(len(value), -1).isfinite().all(1)
        self.stopped[broken.cpu() & (self.stopped < 0)] = self.current_epoch

    @torch.no_grad()
    def on_train_batch_end(self, *_: Any) -> None:
        """Without validation data the last epoch is kept."""
        if not self.trainer.is_last_batch or (self.trainer.num_val_batches and all(self.trainer.num_val_batches)):
            return
        loss = self._train_loss()
        unknown = torch.full_like(loss, torch.nan)
        self._set_metrics(loss, unknown, unknown)
        self.averages.swap(self.ensemble.stacked)
        self._end_epoch(loss, if_better=False)

    def _set_metrics(self, loss: Tensor, metric: Tensor, depth: Tensor) -> None:
        metrics = {"train_loss": loss, self.metric: metric, "depth": depth}
        if self.optimisation.clip is not None:
            metrics["skipped_steps"] = self.skipped
        stopped = (self.stopped >= 0).to(loss.device)
        self.epoch_metrics = {name: value.masked_fill(stopped, torch.nan) for name, value in metrics.items()}

    def _train_loss(self) -> Tensor:
        return torch.div(*self._sum_over_processes(self.sums))

    def _sum_over_processes(self, sums: Tensor) -> Tensor:
        reduced = self.trainer.strategy.reduce(sums.clone(), reduce_op="sum")
        assert isinstance(reduced, Tensor)
        return reduced

    def last_values(self) -> dict[str, Tensor]:
        if self.averages:
            return dict(zip(self.ensemble.names, self.averages.values, strict=True))
        return self.ensemble.values()


def over_processes(errors: Tensor, share: float) -> Tensor:
    """Each member's current loss on the batch of all processes, (M,), without a gradient."""
    errors = errors.detach()
    if distributed.is_available() and distributed.is_initialized():
        errors = errors * (share / distributed.get_world_size())
        distributed.all_reduce(errors)
    return errors


def mean_over_steps(values: Tensor, lengths: Tensor | None) -> Tensor:
    """Each member's mean, (M,), of `values` (M, L, B, T) over the layers and the time steps of each sequence."""
    if lengths is None:
        return values.flatten(1).mean(1)
    return values.flatten(1).sum(1) / (values.size(1) * lengths.sum(1))
