"""`eirehn warmup`: compile the CPU kernels before they are needed."""

from __future__ import annotations

import argparse
import time

from .common import UsageError

DTYPES = ("float32", "float64")


def warmup(given: list[str]) -> None:
    """Compiles the CPU kernels into the folder where later calls find them, as for a container image. Only the
    layers need be installed. Run it as the user, and on the type of processor, that will run the layers."""
    # Not the parser of the other commands, which needs an extra.
    parser = argparse.ArgumentParser("eirehn warmup", description=warmup.__doc__, allow_abbrev=False)
    parser.add_argument(
        "--dtype", default="float32", help="types of the layers: float32, float64 or both, as float32,float64"
    )
    parser.error = _refuse  # type: ignore[assignment,method-assign]
    dtypes = parser.parse_args(given).dtype.split(",")
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise UsageError(f"--dtype must be float32, float64 or float32,float64, got {dtype!r}")
    from ..ops.cpu.ahead import warm_up

    for dtype in dict.fromkeys(dtypes):
        began = time.monotonic()
        folder = warm_up(dtype)
        print(f"{dtype}: all kernels are compiled, {time.monotonic() - began:.1f} s")
    print(f"they are in {folder}")


def _refuse(message: str) -> None:
    raise UsageError(f"{message} (eirehn warmup --help)")
