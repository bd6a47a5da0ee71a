"""How FullSOAP finds its bases on a GPU: what each way takes, and what a short training makes of it.

    python benchmarks/soap_bases.py [--epochs 40] [way …]

`eigh` is the optimiser as it is. The others take the eigenvectors once and then follow them by a step of orthogonal
iteration, the basis of moment @ basis: by Householder's QR, or by Cholesky's of columns of length one, done twice.
The training is that of synthetic-best over so many epochs, cosine included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytorch_lightning as pl
import torch
from gpu_timing import milliseconds, say
from torch import Tensor

import eirehn.training.fit as fit
from eirehn.recipes import synthetic
from eirehn.training.checkpoints import seeded
from eirehn.training.modules import Task
from eirehn.training.recipe import Hardware
from eirehn.training.soap import FullSOAP


def householder(matrix: Tensor) -> Tensor:
    return torch.linalg.qr(matrix)[0]


def cholesky(matrix: Tensor) -> Tensor:
    for _ in range(2):
        matrix = matrix / matrix.norm(dim=-2, keepdim=True).clamp(min=1e-30)
        factor, _ = torch.linalg.cholesky_ex(matrix.mT @ matrix)
        matrix = torch.linalg.solve_triangular(factor.mT, matrix, upper=True, left=False)
    return matrix


WAYS: dict[str, tuple[Callable[[Tensor], Tensor] | None, int]] = {
    "eigh": (None, 300),
    "qr": (householder, 300),
    "cholesky": (cholesky, 300),
    "qr, every 100": (householder, 100),
    "eigh, every 1000": (None, 1000),
}


class Following(FullSOAP):
    """FullSOAP with bases that follow the first."""

    orthogonal: Callable[[Tensor], Tensor] | None = None
    seconds = 0.0

    def after_step(self) -> None:
        count, every = self._state()["count"], self.param_groups[0]["every"]
        due = count == self.BLOCK or count % every == 0
        if due:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        super().after_step()
        if due:
            torch.cuda.synchronize()
            type(self).seconds += time.perf_counter() - begin

    def _turn(self, member: int, state: dict[str, Any], group: dict[str, Any]) -> None:
        count, orthogonal = state["count"], type(self).orthogonal
        if count == self.BLOCK or orthogonal is None:
            super()._turn(member, state, group)
            return
        moment, old = (
            state["moment"][member] / (1 - group["memory"] ** (count // self.BLOCK)),
            state["basis"][member],
        )
        product = moment @ old
        order = (old * product).sum(0).argsort(descending=True)  # the larger first, as their spans need
        basis = orthogonal(product[:, order])
        if not basis.isfinite().all():
            say(f"no basis for member {member} at step {count}")
            return
        values = (basis * (moment @ basis)).sum(0)
        state["mean"][member] = basis.mT @ (old @ state["mean"][member])
        state["square"][member] = values.clamp(min=0) * (1 - group["betas"][1] ** count)
        state["basis"][member] = basis


def train(name: str, epochs: int) -> tuple[Task, float]:
    orthogonal, every = WAYS[name]
    Following.orthogonal = None if orthogonal is None else staticmethod(orthogonal)
    Following.seconds = 0.0
    best = synthetic.best()
    recipe = replace(best, optimisation=replace(best.optimisation, epochs=epochs), hardware=Hardware("gpu"))
    task = fit.make_task(recipe)

    def configure() -> Any:
        o = recipe.optimisation
        options: dict[str, Any] = {"weight_decay": o.weight_decay, "every": every}
        optimizer = Following(task.parameters(), o.learning_rate, (o.beta1, o.beta2), **options)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, o.rate(epochs * 80))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    task.configure_optimizers = configure  # type: ignore[method-assign]  # for this task alone
    splits = recipe.data.load()
    begin = time.perf_counter()
    with fit.quiet(), seeded(0):
        trainer = fit.make_trainer(recipe, None, [Kept()])
        trainer.fit(task, datamodule=fit.Data(recipe, splits))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    values = sorted((1e3 * task.best.score).tolist())
    shown = " ".join(f"{value:.3f}" for value in values)
    say(f"{name:<18} {seconds:6.1f} s, bases {Following.seconds:5.1f} s, validation 1e-3: {shown}")
    return task, seconds


class Kept(pl.Callback):
    moment: Tensor
    basis: Tensor

    def on_train_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        (state,) = trainer.optimizers[0].state.values()
        Kept.moment, Kept.basis = state["moment"].clone(), state["basis"].clone()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("ways", nargs="*")
    options = parser.parse_args()
    for number, name in enumerate(options.ways or WAYS):
        train(name, options.epochs)
        if number == 0:
            table(Kept.moment, Kept.basis)


def table(moment: Tensor, basis: Tensor) -> None:
    say(f"moment {tuple(moment.shape)}; milliseconds, all members:")
    pairs = list(zip(moment, basis, strict=True))
    work: dict[str, Callable[[], object]] = {
        "eigh one by one": lambda: [torch.linalg.eigh(each) for each in moment],
        "eigh batched": lambda: torch.linalg.eigh(moment),
        "qr one by one": lambda: [torch.linalg.qr(each @ own) for each, own in pairs],
        "qr batched": lambda: torch.linalg.qr(moment @ basis),
        "cholesky, twice": lambda: cholesky(moment @ basis),
        "one product": lambda: moment @ basis,
    }
    for word, job in work.items():
        say(f"  {word:<18} {milliseconds(job, 1):9.1f}")


if __name__ == "__main__":
    main()
