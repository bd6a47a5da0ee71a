"""How stably recurrent layers train, and how their gradients grow over time.

    python benchmarks/stability.py [--tasks har synthetic words] [--layers NAME ...] [--seeds 20]
        [--json results/stability.json]
    python benchmarks/stability.py --classifier [--seeds 20] [--json results/stability-classifier.json]
    python benchmarks/stability.py --table results/stability.json

Each layer is trained by the same plain PyTorch loop (AdamW, warm-up and cosine decay, gradients clipped at 1, steps
with non-finite gradients skipped), from its default initialisation, on

    har        800 windows of UCI HAR, 128 time steps; 32 units, 20 epochs, test accuracy
    synthetic  2000 sequences of the paper's synthetic task, 20 time steps; 20 units, 15 epochs, test MSE
    words      150,000 words of the Penn Treebank, the 1500 most frequent known; 64 units, 2 epochs of windows of
               35 words, validation perplexity

Before and after training it measures the norm of the gradient of `v · h_T` with respect to the first state, for a
random unit vector v, on real input sequences of 16 to 1024 time steps (shorter ones joined end to end). At the
initialisation it reports the median, in float64, since an LSTM's gradient is below what float32 holds; after
training the largest, in float32, as training computes it. Runs that are in the file already are not repeated.

`--classifier` trains `eirehn.sklearn.ElasticClassifier(epochs=20)` on the same windows of HAR, with its default
network and with an LSTM, and counts the warnings that `fit` gives.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eirehn import EIREHN, RHN, SREHN
from eirehn._internal.files import write_json
from eirehn.data.download import kept
from eirehn.data.synthetic import SyntheticData
from eirehn.sklearn import ElasticClassifier
from eirehn.training.provenance import cores, provenance

DEPTH = 5
LAYERS: dict[str, Callable[[int, int], Any]] = {
    "torch LSTM": lambda x, h: nn.LSTM(x, h, batch_first=True),
    "torch GRU": lambda x, h: nn.GRU(x, h, batch_first=True),
    "RHN": lambda x, h: RHN(x, h, depth=DEPTH, batch_first=True),
    "SREHN": lambda x, h: SREHN(x, h, max_depth=DEPTH, batch_first=True),
    "EI-REHN": lambda x, h: EIREHN(x, h, max_depth=DEPTH, batch_first=True),
    "EI-REHN, depth 10": lambda x, h: EIREHN(x, h, max_depth=10, batch_first=True),
    "EI-REHN, 2 layers": lambda x, h: EIREHN(x, h, 2, max_depth=DEPTH, batch_first=True),
    "EI-REHN, bidirectional": lambda x, h: EIREHN(x, h, max_depth=DEPTH, batch_first=True, bidirectional=True),
    "EI-REHN, recursive": lambda x, h: EIREHN(x, h, max_depth=DEPTH, batch_first=True, weight_update="recursive"),
    "EI-REHN, paper": lambda x, h: EIREHN(x, h, max_depth=DEPTH, batch_first=True, weight_update="paper"),
    "EI-REHN, additive": lambda x, h: EIREHN(x, h, max_depth=DEPTH, batch_first=True, weight_update="additive"),
    "EI-REHN, scaling": lambda x, h: EIREHN(x, h, max_depth=DEPTH, batch_first=True, weight_update="scaling"),
    "EI-REHN, outer": lambda x, h: EIREHN(x, h, max_depth=DEPTH, batch_first=True, weight_update="outer"),
    "EI-REHN, own decay": lambda x, h: own_decay(x, h),
    "EI-REHN, paper, flat gates": lambda x, h: flat_gates(x, h),
}
"""All but the last two from the initialisation that a user gets; these from one in which a gate's decay hardly
depends on the input, and from that of version 0.1."""
LENGTHS = (16, 64, 256, 1024)
SAMPLES = 16  # sequences that gradients are measured on


def own_decay(input_size: int, hidden_size: int) -> EIREHN:
    layer = EIREHN(input_size, hidden_size, max_depth=DEPTH, batch_first=True)
    layer.reset_parameters(alpha=0.25, decay_bias=-4.0, decay_scale=0.1)
    return layer


def flat_gates(input_size: int, hidden_size: int) -> EIREHN:
    layer = EIREHN(input_size, hidden_size, max_depth=DEPTH, batch_first=True, weight_update="paper")
    layer.reset_parameters(alpha=0.05, gate_bias=0.0, decay_bias=-4.0, decay_scale=0.1)
    return layer


@dataclass(frozen=True)
class Data:
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    hidden_size: int
    epochs: int
    batch_size: int
    outputs: int


@lru_cache
def har() -> Data:
    with np.load(kept("har", "har.npz")) as arrays:
        x, y = arrays["X_train"], arrays["y_train"]
        test, wanted = arrays["X_test"], arrays["y_test"]
    chosen = np.random.default_rng(0).choice(len(x), 800, replace=False)
    mean, scale = x[chosen].mean((0, 1)), x[chosen].std((0, 1))

    def split(windows: Any, labels: Any) -> tuple[Tensor, Tensor]:
        return torch.from_numpy((windows - mean) / scale), torch.from_numpy(labels).long()

    return Data(split(x[chosen], y[chosen]), split(test, wanted), 32, 20, 16, 6)


@lru_cache
def synthetic() -> Data:
    splits = SyntheticData(train=2000).load()
    train, test = splits.train, splits.test
    return Data((train.x, train.target), (test.x, test.target), 20, 15, 20, 2)


@lru_cache
def words() -> Data:
    texts = [kept("ptb", f"ptb.{name}.txt").read_text("utf-8").replace("\n", "<eos>").split() for name in SPLITS]
    texts = [texts[0][:150_000], texts[1][:15_000]]
    known = {word: number for number, (word, _) in enumerate(Counter(texts[0]).most_common(1500), 1)}

    def windows(text: list[str]) -> tuple[Tensor, Tensor]:
        tokens = torch.tensor([known.get(word, 0) for word in text])
        count = (len(tokens) - 1) // 35
        return tokens[: count * 35].view(count, 35), tokens[1 : count * 35 + 1].view(count, 35)

    return Data(windows(texts[0]), windows(texts[1]), 64, 2, 20, len(known) + 1)


SPLITS = ("train", "valid")
TASKS: dict[str, Callable[[], Data]] = {"har": har, "synthetic": synthetic, "words": words}


class Model(nn.Module):
    """A layer between an embedding, where its input are words, and a linear head."""

    def __init__(self, make: Callable[[int, int], Any], data: Data) -> None:
        super().__init__()
        x, target = data.train
        size = data.hidden_size
        self.embedding = None if x.is_floating_point() else nn.Embedding(data.outputs, size)
        self.layer = make(x.size(-1) if x.is_floating_point() else size, size)
        self.head = nn.Linear(size * (2 if self.layer.bidirectional else 1), data.outputs)
        self.once = target.dim() == 1  # one answer for a sequence

    def read(self, x: Tensor) -> Tensor:
        embedded: Tensor = x if self.embedding is None else self.embedding(x)
        return embedded

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(self.read(x))[0]
        answer: Tensor = self.head(out.mean(1) if self.once else out)
        return answer


def loss_of(answer: Tensor, target: Tensor) -> Tensor:
    if target.is_floating_point():
        return F.mse_loss(answer, target)
    return F.cross_entropy(answer.flatten(0, -2), target.flatten())


@torch.no_grad()
def score(model: Model, data: Data) -> float:
    """Accuracy, mean squared error or perplexity."""
    x, target = data.test
    answer = torch.cat([model(part) for part in x.split(500)])
    if model.once:
        return (answer.argmax(-1) == target).double().mean().item()
    loss = loss_of(answer, target).item()
    return loss if target.is_floating_point() else math.exp(min(loss, 700.0))


def train(model: Model, data: Data, generator: torch.Generator) -> tuple[int, int]:
    """The steps there were after the warm-up, and how many of them were skipped."""
    found = [finite for _, finite in steps_of(model, data, generator)]
    warm = len(found) // 20
    return len(found) - warm, found[warm:].count(False)


def steps_of(
    model: Model, data: Data, generator: torch.Generator, rate: float = 0.01
) -> Iterator[tuple[Tensor, bool]]:
    """The batches of a training, each after its step, and whether its gradient was finite: else it was skipped."""
    x, target = data.train
    batches = math.ceil(len(x) / data.batch_size)
    steps = data.epochs * batches
    warm = steps // 20
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    for step, chosen in enumerate(order(len(x), data, generator)):
        rise, fall = (step + 1) / (warm + 1), 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))
        optimizer.param_groups[0]["lr"] = rate * (rise if step < warm else fall)
        optimizer.zero_grad()
        loss_of(model(x[chosen]), target[chosen]).backward()
        finite = bool(nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite())
        if finite:
            optimizer.step()
        yield x[chosen], finite


def order(count: int, data: Data, generator: torch.Generator) -> Iterator[Tensor]:
    for _ in range(data.epochs):
        yield from torch.randperm(count, generator=generator).split(data.batch_size)


def gradients(model: Model, data: Data, dtype: torch.dtype) -> dict[int, list[float]]:
    """By length, the norm of `∂(v · h_T) / ∂h_0` of each sample."""
    layer = model.layer.to(dtype)
    found = {}
    for length in LENGTHS:
        with torch.no_grad():
            x = sequences(model.read(data.test[0][:4000]), length).to(dtype)
        v = torch.randn(layer.hidden_size, generator=torch.Generator().manual_seed(0)).to(dtype)
        cells = layer.num_layers * (2 if layer.bidirectional else 1)
        first = [torch.zeros(cells, len(x), layer.hidden_size, dtype=dtype, requires_grad=True) for _ in "hc"]
        state = tuple(first) if isinstance(layer, nn.LSTM) else first[0]
        out = layer(x, state)[0]
        ends = out[:, -1, : layer.hidden_size]
        if layer.bidirectional:
            ends = ends + out[:, 0, layer.hidden_size :]
        parts = torch.autograd.grad((ends @ (v / v.norm())).sum(), first, allow_unused=True)
        whole = torch.cat([part for part in parts if part is not None], -1)  # (cells, B, H or 2H)
        found[length] = whole.norm(dim=-1).amax(0).tolist()
    model.to(torch.float32)
    return found


def sequences(x: Tensor, length: int) -> Tensor:
    """(SAMPLES, length, X), from ones that lie end to end."""
    each = math.ceil(length / x.size(1))
    starts = torch.linspace(0, len(x) - each, SAMPLES).long()
    return torch.stack([x[start : start + each].flatten(0, 1)[:length] for start in starts.tolist()])


def run(task: str, name: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    data = TASKS[task]()
    torch.manual_seed(seed)
    model = Model(LAYERS[name], data)
    before = gradients(model, data, torch.float64)
    since = time.perf_counter()
    steps, skipped = train(model, data, torch.Generator().manual_seed(seed))
    seconds = time.perf_counter() - since
    after = gradients(model.eval(), data, torch.float32)
    depth = None
    if isinstance(model.layer, SREHN | EIREHN):
        with torch.no_grad():
            depth = model.layer(model.read(data.test[0][:200]), return_depth=True)[2].double().mean().item()
    return {
        "task": task,
        "layer": name,
        "seed": seed,
        "score": score(model, data),
        "skipped": skipped / steps,
        "gradient_at_initialisation": [statistics.median(before[length]) for length in LENGTHS],
        "gradient_after": [
            max(after[length], key=lambda norm: (not math.isfinite(norm), norm)) for length in LENGTHS
        ],
        "depth": depth,
        "seconds": round(seconds, 1),
    }


def classify(kind: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    data = har()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = ElasticClassifier(kind=kind, epochs=20, random_state=seed).fit(*map(Tensor.numpy, data.train))
    x, y = map(Tensor.numpy, data.test)
    return {
        "kind": kind,
        "seed": seed,
        "accuracy": model.score(x, y),
        "warnings": [str(each.message) for each in caught],
        "depth": float(model.depths(x[:200]).mean()),
        **provenance(),
    }


def classifiers(seeds: int, path: Path) -> None:
    found: dict[str, Any] = {"command": f"python benchmarks/stability.py --classifier --seeds {seeds}", "runs": []}
    wanted = [(kind, seed) for kind in ("EIREHN", "LSTM") for seed in range(seeds)]
    with ProcessPoolExecutor(cores()) as pool:
        for done in as_completed([pool.submit(classify, *each) for each in wanted]):
            found["runs"].append(done.result())
            write_json(path, found)
    for kind in ("EIREHN", "LSTM"):
        runs = [each for each in found["runs"] if each["kind"] == kind]
        scores = [each["accuracy"] for each in runs]
        print(
            f"{kind}: accuracy median {statistics.median(scores):.3f}, worst {min(scores):.3f}, "
            f"best {max(scores):.3f}; {sum(bool(each['warnings']) for each in runs)} of {len(runs)} seeds warned"
        )


def table(found: dict[str, Any]) -> str:
    """A row for each task and layer."""
    lengths = ", ".join(map(str, LENGTHS))
    lines = [
        "| task | layer | seeds | median | worst | skipped steps | "
        f"gradient at the initialisation, T = {lengths} | largest after training | depth |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for name in LAYERS:
            runs = [each for each in found["runs"] if (each["task"], each["layer"]) == (task, name)]
            if runs:
                lines.append("| " + " | ".join(row(task, name, runs)) + " |")
    return "\n".join(lines)


def row(task: str, name: str, runs: list[dict[str, Any]]) -> list[str]:
    scores = sorted(math.inf if each["score"] is None else each["score"] for each in runs)
    if task == "har":
        worst, shown = scores[0], "{:.3f}"
    else:
        worst, shown = scores[-1], "{:.3g}" if task == "synthetic" else "{:.1f}"
    start = [statistics.median(each["gradient_at_initialisation"][i] for each in runs) for i in range(len(LENGTHS))]
    after = [largest([each["gradient_after"][i] for each in runs]) for i in range(len(LENGTHS))]
    depths = [each["depth"] for each in runs if each["depth"] is not None]
    return [
        task,
        name,
        str(len(runs)),
        shown.format(statistics.median(scores)),
        shown.format(worst),
        f"{100 * statistics.fmean(each['skipped'] for each in runs):.3g} %",
        ", ".join(f"{value:.0e}" for value in start),
        ", ".join("not finite" if value is None else f"{value:.0e}" for value in after),
        f"{statistics.fmean(depths):.1f}" if depths else "",
    ]


def largest(norms: list[float | None]) -> float | None:
    """None where one of them is: JSON has no infinity."""
    known = [norm for norm in norms if norm is not None and math.isfinite(norm)]
    return max(known) if len(known) == len(norms) else None


def main() -> None:
    parser = argparse.ArgumentParser(description="How stably recurrent layers train.")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--classifier", action="store_true", help="train the estimator in place of the layers")
    parser.add_argument("--json", type=Path, help="results/stability.json, or stability-classifier.json there")
    parser.add_argument("--table", type=Path, help="print the table of this file, and do nothing else")
    asked = parser.parse_args()
    if asked.table is not None:
        print(table(json.loads(asked.table.read_text())))
        return
    if asked.classifier:
        classifiers(asked.seeds, asked.json or Path("results/stability-classifier.json"))
        return
    path = asked.json or Path("results/stability.json")
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"runs": []}
    known = {(each["task"], each["layer"], each["seed"]) for each in found["runs"]}
    wanted = [
        (task, name, seed)
        for task in asked.tasks
        for name in asked.layers
        for seed in range(asked.seeds)
        if task == "har" or "bidirectional" not in name  # which would see what it is to predict
    ]
    where = provenance()
    commit = where.pop("commit")  # a file may be continued by a later one
    found |= {"command": "python benchmarks/stability.py", "lengths": LENGTHS, **where}
    with ProcessPoolExecutor(cores()) as pool:
        for done in as_completed([pool.submit(run, *each) for each in wanted if each not in known]):
            found["runs"].append({**done.result(), "commit": commit})
            write_json(path, found)
            latest = found["runs"][-1]
            print(latest["task"], latest["layer"], latest["seed"], latest["score"], latest["skipped"], flush=True)
    print(table(found))


if __name__ == "__main__":
    main()
