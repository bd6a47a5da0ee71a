"""The first call of a layer on a CPU, whose kernels are compiled: seconds of a forward and backward pass in new
processes, with an empty cache and with a full one.

    python benchmarks/first_call.py [--runs 3] [--json results/first-call.json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from eirehn.training.provenance import provenance

SCRIPT = """
import time, torch, eirehn
layer, x = eirehn.EIREHN(3, 8, max_depth=3), torch.randn(5, 4, 3)
began = time.perf_counter()
layer(x)[0].sum().backward()
print(time.perf_counter() - began)
"""


def seconds(folder: str) -> float:
    settings = {**os.environ, "NUMBA_CACHE_DIR": folder, "EIREHN_QUIET": "1"}
    run = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, env=settings)
    return float(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found: dict[str, list[float]] = {"empty cache": [], "full cache": []}
    for _ in range(asked.runs):
        with tempfile.TemporaryDirectory() as folder:
            for times in found.values():
                times.append(round(seconds(folder), 2))
    for name, times in found.items():
        print(f"{name}: {', '.join(map(str, times))} s")
    if asked.json:
        about = {"command": f"python benchmarks/first_call.py --runs {asked.runs}", **provenance()}
        asked.json.write_text(json.dumps({**about, "seconds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
