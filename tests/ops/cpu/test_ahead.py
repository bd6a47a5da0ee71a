from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from helpers.cpu_problems import cast, everything, from_inputs, from_projections, make_problem

import eirehn
from eirehn.ops.cpu import ahead, runtime


def compiled() -> dict[str, set[object]]:
    return {name: set(kernel.call.overloads) for name, kernel in vars(runtime.kernels()).items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_compiled_ahead_is_what_is_called(dtype: torch.dtype) -> None:
    ahead.compile_kernels(str(dtype).removeprefix("torch."), [*ahead.HERE, *ahead.BACKWARD])
    before = compiled()
    assert all(before.values())
    with eirehn.use_backend("cpu"):
        for problem in (
            make_problem("paper", H=5, sizes=[3, 2], depth=3, masked=True),
            make_problem("RHN", H=5, sizes=[3, 2], depth=3),
            make_problem("bounded", H=5, sizes=[3, 2], depth=3, reverse=True),
        ):
            for way in (from_inputs, from_projections):
                everything(cast(problem, dtype), way)
        with torch.no_grad():
            eirehn.EIREHN(2, 3, dtype=dtype)(torch.randn(4, 1, 2, dtype=dtype))
    assert compiled() == before


@pytest.mark.slow
def test_a_call_after_warmup_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    code = """
        import torch, eirehn
        from eirehn.ops.cpu.runtime import kernels
        layer = eirehn.SREHN(3, 4)
        layer(torch.randn(5, 4, 3))[0].sum().backward()
        with torch.no_grad():
            layer(torch.randn(5, 1, 3))
        print([sum(each.call.stats.cache_misses.values()) for each in vars(kernels()).values()])
    """
    said = []
    for command in (["-m", "eirehn", "warmup"], ["-c", textwrap.dedent(code)]):
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, check=True
        )
        said.append(done)
    assert f"they are in {tmp_path}" in said[0].stdout
    assert said[0].stderr.startswith("eirehn: compiling CPU kernels")
    assert (said[1].stdout.strip(), said[1].stderr) == ("[0, 0, 0, 0, 0, 0, 0]", "")
