"""`eirehn export`: a trained model as an ONNX file."""

from __future__ import annotations

from pathlib import Path

from .._internal.extras import need
from ..models.export import export_onnx
from ..models.io import load
from .common import UsageError, check_apart, check_can_be_written
from .parser import make_parser, parse


def export(given: list[str]) -> None:
    """Writes a trained model as an ONNX file, which ONNX Runtime runs without PyTorch."""
    parser = make_parser(export)
    parser.add_argument(
        "run", type=Path, help="folder of the run; of several seeds, the best on validation data is used"
    )
    parser.add_argument("file", type=Path, help="the file to write, NAME.onnx")
    parser.add_argument(
        "--which", type=str, default="best", help="weights of the best epoch or the last: best, last"
    )
    parser.add_argument("--max_depth", type=int | None, help="inner steps allowed, in place of the network's own")
    asked = parse(parser, given)
    if asked.file.suffix.lower() != ".onnx":
        raise UsageError(f"FILE must end in .onnx, got {asked.file.name!r}")
    check_can_be_written("FILE", asked.file)
    check_apart("FILE", asked.file, asked.run)
    need("onnx", "onnxscript")
    export_onnx(load(asked.run, which=asked.which), asked.file, max_depth=asked.max_depth)
    print(f"{asked.file}: {asked.file.stat().st_size / 1000:,.0f} kB")
