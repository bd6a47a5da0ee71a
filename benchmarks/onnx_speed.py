"""A layer in ONNX Runtime beside PyTorch, and beside the ONNX file of the unrolled loop: milliseconds, one thread.

    python benchmarks/onnx_speed.py [--rounds 50] [--json results/onnx-speed.json]

9 inputs, 48 units, 128 time steps, at most 5 inner steps, inference. The layers are as they are initialised. Calls
are interleaved; the result is the shortest time, which other work on the machine disturbs least. The unrolled file
is that of the backend `reference`, for a fixed number of time steps. It is exported without the exporter's
optimisations, which take too long for such a file.
"""

import argparse
import json
import logging
import platform
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from speed import commit
from torch import Tensor, nn

import eirehn

INPUTS, HIDDEN, STEPS, DEPTH, BATCHES = 9, 48, 128, 5, (1, 32)
UNROLLED = ("RHN", "EIREHN")


def layers() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"batch_first": True}
    return {
        "LSTM": eirehn.LSTM(INPUTS, HIDDEN, **sizes),
        "RHN": eirehn.RHN(INPUTS, HIDDEN, max_depth=DEPTH, **sizes),
        "SREHN": eirehn.SREHN(INPUTS, HIDDEN, max_depth=DEPTH, **sizes),
        "EIREHN": eirehn.EIREHN(INPUTS, HIDDEN, max_depth=DEPTH, **sizes),
        "ACT": eirehn.ACT(INPUTS, HIDDEN, max_depth=DEPTH, **sizes),
    }


class Outputs(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def exported(layer: nn.Module, x: Tensor, **options: Any) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(Outputs(layer), (x,), dynamo=True, verbose=False, input_names=["x"], **options)
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()
    return program.model_proto.SerializeToString()


def runs(file: bytes, x: Tensor) -> Callable[[], Any]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x.numpy()})[0]


def milliseconds(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 2):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            taken[name].append(1000 * (time.perf_counter() - begin))
    return {name: round(min(each[2:]), 3) for name, each in taken.items()}


def files(name: str, layer: nn.Module) -> dict[str, bytes]:
    found = {"onnx": exported(layer, torch.zeros(2, 3, INPUTS), dynamic_shapes=({0: "batch", 1: "time"},))}
    if name in UNROLLED:
        with eirehn.use_backend("reference"):
            x = torch.zeros(2, STEPS, INPUTS)
            found["unrolled"] = exported(layer, x, dynamic_shapes=({0: "batch"},), optimize=False)
    return found


def measured(name: str, layer: nn.Module, made: dict[str, bytes], batch: int, rounds: int) -> dict[str, Any]:
    x = torch.randn(batch, STEPS, INPUTS)
    calls = {"torch": lambda: layer(x)[0], **{each: runs(file, x) for each, file in made.items()}}
    for each in calls:
        if (error := abs(torch.as_tensor(calls[each]()) - layer(x)[0]).max()) > 1e-5:
            raise SystemExit(f"{name}, {each}: outputs differ by {error}")
    depth = 1.0 if name == "LSTM" else float(layer(x, return_depth=True)[2].float().mean())
    return {
        "layer": name,
        "batch": batch,
        "depth": round(depth, 2),
        "milliseconds": milliseconds(calls, rounds),
        "bytes": {each: len(file) for each, file in made.items()},
    }


def table(found: dict[str, Any]) -> str:
    lines = [
        "| | batch | inner steps | eirehn, ms | ONNX, ms | ONNX, unrolled, ms | kB | unrolled, kB |",
        f"|{'---|' * 8}",
    ]
    for row in found["rows"]:
        taken, size = row["milliseconds"], row["bytes"]
        cells = [row["layer"], row["batch"], row["depth"], taken["torch"], taken["onnx"], taken.get("unrolled", "")]
        cells += [size["onnx"] // 1000, size["unrolled"] // 1000 if "unrolled" in size else ""]
        shown = (f"{each:.3g}" if isinstance(each, float) else str(each) for each in cells)
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    found = []
    for name, layer in layers().items():
        made = files(name, layer.eval())
        for batch in BATCHES:
            found.append(measured(name, layer, made, batch, asked.rounds))
            print(json.dumps(found[-1]), flush=True)
    if asked.json:
        about = {
            "command": f"python benchmarks/onnx_speed.py --rounds {asked.rounds}",
            "commit": commit(),
            "machine": f"{platform.machine()}, 1 thread",
            "seed": 0,
            "versions": {name: version(name) for name in ("eirehn", "torch", "onnx", "onnxscript", "onnxruntime")},
        }
        asked.json.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
