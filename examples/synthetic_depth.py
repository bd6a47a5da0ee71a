"""Trains a small EI-REHN on the synthetic task, with and without a depth penalty, and draws the depth it spends.

    python examples/synthetic_depth.py --out out

The task's generator takes a varying number of inner steps; the model has to find out how many to take itself.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import eirehn
from eirehn.data.synthetic import synthetic
from eirehn.report.figures import depth_figure

TRAIN, TEST = 2000, 1000


class Predictor(nn.Module):
    """Predicts the next point of each sequence."""

    def __init__(self, hidden_size: int, max_depth: int) -> None:
        super().__init__()
        self.layer = eirehn.EIREHN(2, hidden_size, max_depth=max_depth, batch_first=True)
        self.head = nn.Linear(hidden_size, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out, _, depth, cost = self.layer(x, return_depth=True, return_cost=True)
        return self.head(out), depth[0], cost[0]


def train(x: Tensor, penalty: float, epochs: int, seed: int) -> Predictor:
    torch.manual_seed(seed)
    model = Predictor(hidden_size=10, max_depth=6)
    optimizer = torch.optim.Adam(model.parameters())
    batches = -(-len(x) // 100)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=epochs * batches)
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        total = 0.0
        for rows in torch.randperm(len(x)).split(100):
            prediction, depth, cost = model(x[rows, :-1])
            error = nn.functional.mse_loss(prediction, x[rows, 1:])
            optimizer.zero_grad()
            (error + penalty * error.detach() * (cost - 2).clamp(min=0).mean()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += error.item()
        seconds = time.perf_counter() - start
        print(
            f"penalty {penalty:g}  epoch {epoch:2d}/{epochs}  train MSE {total / batches * 1e3:6.2f}e-3  "
            f"depth {depth.double().mean():4.2f}  {seconds:4.0f} s",
            flush=True,
        )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error("--epochs must be at least 1")
    arguments.out.mkdir(parents=True, exist_ok=True)

    data = synthetic(TRAIN + TEST, seed=0)
    x = torch.from_numpy(data.x)
    taken = torch.from_numpy(data.depth)[TRAIN:, 1:]
    lines = []
    for penalty in (0.0, 0.03):
        model = train(x[:TRAIN], penalty, arguments.epochs, arguments.seed)
        with torch.no_grad():
            prediction, spent, _ = model(x[TRAIN:, :-1])
        error = nn.functional.mse_loss(prediction, x[TRAIN:, 1:]).item()
        lines.append(
            f"depth penalty {penalty:g}: test MSE {error * 1e3:.3f}e-3 at {spent.double().mean():.2f} inner steps"
        )
    picture = arguments.out / "synthetic-depth.png"
    depth_figure(x[TRAIN:, :-1], spent, taken).savefig(picture, dpi=160)
    print(*lines, f"picture: {picture}", sep="\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the picture is only written at the end")
