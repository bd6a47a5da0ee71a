"""What resets inside a sequence cost: a call without them, calls with `reset`, and a loop over time steps that sets
the state back by hand. Interleaved, medians of CPU time.

    python benchmarks/episodes.py [--rounds 9]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

import eirehn


def by_steps(layer: eirehn.EIREHN, x: Tensor, reset: Tensor) -> Tensor:
    state, outputs = torch.zeros(1, x.size(1), layer.hidden_size), []
    for x_t, reset_t in zip(x, reset, strict=True):
        out, state = layer(x_t[None], state.masked_fill(reset_t[None, :, None], 0.0))
        outputs.append(out)
    return torch.cat(outputs)


def milliseconds(run: Callable[[], Tensor]) -> float:
    began = time.process_time()
    run().sum().backward()
    return 1000 * (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer, x = eirehn.EIREHN(9, 48, max_depth=4), torch.randn(128, 64, 9)
    masks = {share: torch.rand(128, 64) < share for share in (0.01, 0.1)}
    torch.testing.assert_close(layer(x, reset=masks[0.1])[0], by_steps(layer, x, masks[0.1]), rtol=1e-4, atol=1e-4)
    cases: dict[str, Callable[[], Tensor]] = {
        "no resets": lambda: layer(x)[0],
        "resets at 1 % of the time steps": lambda: layer(x, reset=masks[0.01])[0],
        "resets at 10 %": lambda: layer(x, reset=masks[0.1])[0],
        "a loop over time steps": lambda: by_steps(layer, x, masks[0.01]),
    }
    for run in cases.values():
        milliseconds(run)
    taken = [{name: milliseconds(run) for name, run in cases.items()} for _ in range(rounds)]
    print("forward and backward, H=48, B=64, T=128, one thread")
    for name in cases:
        print(f"{name:34} {statistics.median(each[name] for each in taken):8.1f} ms")


if __name__ == "__main__":
    main()
