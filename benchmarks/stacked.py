"""Many small networks on the synthetic task trained at once, each with its own settings.

Members that agree in what shapes the work share one `Stack`: one kernel launch for all of them and, on a GPU, one
CUDA graph for the whole training step. Each keeps its own initial values, order of the data, optimizer state,
learning rate and clipping, so it trains as it would alone. `search_synthetic.py` runs it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from synthetic_settings import Settings, initial
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

BLOCK = 100  # gradients gathered before the full second moment takes them in


def turned(x: Tensor, quarters: Tensor) -> Tensor:
    """Sequences (M, B, T, 2) turned by 90 degrees as often as `quarters` (M, B) says: (x, y) becomes (y, -x)."""
    cos, sin = (((quarters + k) % 4)[..., None] for k in (0, 3))  # 0 where it is 1, 2 where it is -1
    cos, sin = ((each == 0).float() - (each == 2).float() for each in (cos, sin))
    first, second = x.unbind(-1)
    return torch.stack([cos * first + sin * second, cos * second - sin * first], -1)


class Stack:
    """Members of one shape. All their parameters lie in one matrix `flat`, a row a member."""

    def __init__(self, settings: list[Settings], train: Tensor, valid: Tensor, device: str) -> None:
        self.settings, self.first, self.device = settings, settings[0], device
        self.data = {"train": train.to(device), "valid": valid.to(device)}
        members = [initial(each) for each in settings]
        stacked, _ = stack_module_state(members)
        self.frame = members[0].to("meta")
        self.names, self.shapes = list(stacked), [each.shape[1:] for each in stacked.values()]
        flat = torch.cat([each.detach().flatten(1) for each in stacked.values()], 1).to(device)
        M, P = flat.shape
        self.flat = flat.requires_grad_()
        # All that has a row for each member.
        self.state = {
            "mean": torch.zeros_like(flat),
            "square": torch.zeros_like(flat),
            "best": flat.detach().clone(),
        }
        if self.first.optimizer == "full":
            self.state["basis"] = torch.eye(P, device=device).repeat(M, 1, 1)
            self.state["moment"] = torch.zeros(M, P, P, device=device)
            self.state["block"] = torch.zeros(M, BLOCK, P, device=device)
        self.state["order"] = torch.zeros(M, len(train), dtype=torch.int64, device=device)
        self.state["turn"] = torch.zeros_like(self.state["order"])
        self.state["best_loss"] = torch.full((M,), math.inf, device=device)
        self.state["loss"] = torch.zeros(M, device=device)
        own: dict[str, Callable[[Settings], float]] = {
            "price": lambda each: each.price, "clip": lambda each: each.clip or math.inf,
            "beta1": lambda each: each.betas[0], "beta2": lambda each: each.betas[1],
            "epsilon": lambda each: each.epsilon, "decay": lambda each: each.decay, "rate": lambda each: each.rate,
        }  # fmt: skip
        self.state |= {name: self.column(value) for name, value in own.items()}
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)  # steps, and the place in the epoch
        self.stride = torch.tensor([1, self.first.batch], device=device)
        self.done = 0
        self.generators = [torch.Generator(device).manual_seed(each.seed) for each in settings]
        self.curves: dict[str, list[Tensor]] = {"train": [], "valid": []}
        self.steps = len(train) // self.first.batch
        self.stream = torch.cuda.Stream() if device == "cuda" else None
        self.replay: Callable[[], None] = self.step

    def column(self, value: Callable[[Settings], float]) -> Tensor:
        return torch.tensor([[value(each)] for each in self.settings], device=self.device)  # (M, 1)

    def call(self, flat: Tensor, x: Tensor, *, own: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Predictions (M, B, T, 2), depths (M, B, T) and costs (M,); `own`: each member has its own input."""
        parts = flat.split([math.prod(shape) for shape in self.shapes], 1)
        shaped = (part.unflatten(1, shape) for part, shape in zip(parts, self.shapes, strict=True))
        run = vmap(lambda p, x: functional_call(self.frame, p, (x,)), (0, 0 if own else None))
        found: tuple[Tensor, Tensor, Tensor] = run(dict(zip(self.names, shaped, strict=True)), x)
        return found

    def step(self) -> None:
        """One step of every member, without a word to the host."""
        s = self.state
        place = self.counts[1] + torch.arange(self.first.batch, device=self.device)
        index = s["order"].index_select(1, place)  # (M, B)
        batch = turned(self.data["train"][index], s["turn"].index_select(1, place))  # (M, B, T + 1, 2)
        found, _, cost = self.call(self.flat, batch[:, :, :-1], own=True)
        losses = (found - batch[:, :, 1:]).square().mean((1, 2, 3))  # (M,)
        total = losses + s["price"][:, 0] * cost if any(each.price for each in self.settings) else losses
        (grad,) = torch.autograd.grad(total.sum(), self.flat)
        with torch.no_grad():
            s["loss"] += losses
            self.counts += self.stride
            self.update(grad * (s["clip"] / grad.norm(dim=1, keepdim=True)).clamp(max=1.0))

    def update(self, grad: Tensor) -> None:
        """Adam, for each row with its own rate, in the axes of the parameters or of the eigenbasis."""
        s, count = self.state, self.counts[0]
        full = self.first.optimizer == "full"
        if full:
            s["block"].index_copy_(1, ((count - 1) % BLOCK).view(1), grad[:, None])
            grad = torch.bmm(grad[:, None], s["basis"])[:, 0]
        s["mean"].lerp_(grad, 1 - s["beta1"])
        s["square"].mul_(s["beta2"]).addcmul_(grad * grad, 1 - s["beta2"])
        scale = (s["square"] / (1 - s["beta2"] ** count)).sqrt() + s["epsilon"]
        change = s["mean"] / (1 - s["beta1"] ** count) / scale
        if full:
            change = torch.bmm(s["basis"], change[:, :, None])[:, :, 0]
        self.flat -= s["rate"] * (change + s["decay"] * self.flat)

    @torch.no_grad()
    def turn_basis(self) -> None:
        """Takes the last gradients into the second moment, and from it a new eigenbasis when that is due."""
        s, memory = self.state, self.first.memory
        if self.done % BLOCK == 0:
            s["moment"].mul_(memory).baddbmm_(s["block"].mT, s["block"], alpha=(1 - memory) / BLOCK)
        if self.done != BLOCK and self.done % self.first.every:
            return
        for i in range(len(self.settings)):
            moment = s["moment"][i] / (1 - memory ** (self.done // BLOCK))
            if moment.isfinite().all():  # otherwise it has diverged
                values, basis = torch.linalg.eigh(moment)
                s["mean"][i] = basis.mT @ (s["basis"][i] @ s["mean"][i])
                s["square"][i] = values.clamp(min=0) * (1 - s["beta2"][i] ** self.done)
                s["basis"][i] = basis

    def capture(self) -> None:
        """The step as a CUDA graph; what the trial steps changed is put back."""
        if self.device != "cuda":
            return
        self.counts[1] = 0
        tensors = [self.flat, self.counts, *(self.state[name] for name in ("mean", "square", "loss"))]
        before = [each.detach().clone() for each in tensors]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self.step()
        with torch.no_grad():
            for each, old in zip(tensors, before, strict=True):
                each.copy_(old)
        torch.cuda.synchronize()
        self.replay = graph.replay

    @torch.no_grad()
    def begin_epoch(self) -> None:
        rows = zip(self.state["order"], self.state["turn"], self.settings, self.generators, strict=True)
        for order, turn, each, generator in rows:
            torch.randperm(len(order), generator=generator, device=self.device, out=order)
            if each.turned:
                torch.randint(4, turn.shape, generator=generator, device=self.device, out=turn)
        self.counts[1] = 0
        self.state["loss"].zero_()

    def advance(self, step: int) -> None:
        """Step `step` of the running epoch."""
        if step % 20 == 0:
            progress = self.done / (self.steps * self.first.epochs)
            self.state["rate"].copy_(self.column(lambda each: each.rate_at(progress)), non_blocking=True)
        self.replay()
        self.done += 1
        if self.first.optimizer == "full":
            self.turn_basis()

    @torch.no_grad()
    def losses(self, flat: Tensor, data: Tensor) -> tuple[Tensor, Tensor]:
        """(M,) and the depths (M, B, T)."""
        found, depth, _ = self.call(flat, data[:, :-1], own=False)
        return (found - data[:, 1:]).square().mean((1, 2, 3)), depth

    @torch.no_grad()
    def end_epoch(self) -> None:
        s, flat = self.state, self.flat.detach()
        loss, _ = self.losses(flat, self.data["valid"])
        better = loss < s["best_loss"]
        s["best_loss"] = torch.where(better, loss, s["best_loss"])
        s["best"] = torch.where(better[:, None], flat, s["best"])
        self.curves["valid"].append(loss)
        self.curves["train"].append(s["loss"] / self.steps)

    @torch.no_grad()
    def narrow(self, rows: list[int]) -> Stack:
        """The members of some rows, to be trained on from where they are; `capture` comes next."""
        new = copy.copy(self)
        new.flat = self.flat.detach()[rows].clone().requires_grad_()
        new.state = {name: value[rows].clone() for name, value in self.state.items()}
        new.settings, new.generators = [self.settings[i] for i in rows], [self.generators[i] for i in rows]
        new.counts = self.counts.clone()
        new.curves = {name: [value[rows] for value in curve] for name, curve in self.curves.items()}
        new.replay = new.step
        return new

    @torch.no_grad()
    def results(self, test: Tensor | None = None) -> list[dict[str, Any]]:
        """In thousandths, at each member's best epoch by validation; the depth is that on the validation set."""
        best = self.state["best"]
        depth = self.losses(best, self.data["valid"])[1].double()  # (M, B, T)
        tested = None if test is None else self.losses(best, test.to(self.device))[0]
        curves = {name: (1e3 * torch.stack(curve, 1)).cpu() for name, curve in self.curves.items()}  # (M, epochs)
        return [
            {
                "settings": asdict(each), "parameters": self.flat.size(1),
                "valid": 1e3 * self.state["best_loss"][i].item(), "last": curves["valid"][i, -1].item(),
                "test": None if tested is None else 1e3 * tested[i].item(),
                "depth": depth[i].mean().item(), "depth_std": depth[i].std().item(),
                "curves": {name: [round(x, 5) for x in curve[i].tolist()] for name, curve in curves.items()},
            }
            for i, each in enumerate(self.settings)
        ]  # fmt: skip
