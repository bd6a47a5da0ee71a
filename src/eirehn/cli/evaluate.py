"""`eirehn evaluate`: the metrics of trained runs."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._internal.files import write_json
from .common import as_command, check_apart, check_can_be_written
from .parser import add_model_options, make_parser, parse

if TYPE_CHECKING:
    from ..training.evaluate import Calibrated, Figures


def evaluate(given: list[str]) -> None:
    """Prints the metrics of trained runs on a split of their data."""
    parser = make_parser(evaluate)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--split", type=str, default="test", help="train, validation or test")
    parser.add_argument("--batch", type=int | None, help="parallel streams of a text; default 1")
    add_model_options(parser)
    parser.add_argument("--together", action="store_true", help="also evaluate all language models as one ensemble")
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="also evaluate language models after temperature scaling on validation data",
    )
    parser.add_argument("--results", type=Path | None, help="also write the results to this file")
    asked = parse(parser, given)
    check_can_be_written("--results", asked.results)
    check_apart("--results", asked.results, *asked.runs)
    from ..training.callbacks import stopped_seeds
    from ..training.evaluate import calibrate, evaluate_together
    from ..training.evaluate import evaluate as measure
    from ..training.provenance import provenance
    from ..training.run import RunFolder

    _check_runs(asked)
    options = {name: asked[name] for name in ("split", "which", "max_depth", "batch", "device")}
    origin = provenance() if asked.results is not None else {}
    results: dict[str, Any] = {"command": as_command(["evaluate", *given]), **origin, **options, "runs": []}
    for run in asked.runs:
        figures = measure(run, **options)
        if len(asked.runs) > 1:
            print(f"{run}:")
        results["runs"].append({"run": str(run), **figures._asdict(), "mean": _print(figures)})
        for seed, epoch in stopped_seeds(figures.seeds, RunFolder(run).read_result() or {}).items():
            print(f"eirehn: training of seed {seed} was unstable and stopped after epoch {epoch}", file=sys.stderr)
        if asked.calibrate:
            better = calibrate(run, **options)
            besides = getattr(RunFolder(run).recipe().network, "calibrated", False)
            _print_calibrated(better, own=asked.split == "validation", besides=besides)
            found = {"temperatures": better.temperatures, "values": better.values}
            results["runs"][-1]["calibrated"] = found
    if asked.together:
        whole = evaluate_together(asked.runs, **options)
        for member in whole.left_out:
            print(f"eirehn: left out, because it has no best epoch: {member}", file=sys.stderr)
        plain = ", without temperature scaling" if asked.calibrate else ""
        print(f"together, {whole.members} models: {whole.metric} {whole.value:.6g}{plain}")
        results["together"] = whole._asdict()
    if asked.results is not None:
        write_json(asked.results, results)


def _check_runs(asked: Any) -> None:
    """Raises errors before the data are read."""
    from ..training.evaluate import check_of_text, check_together, check_trained

    for run in asked.runs:
        check_trained(run, asked.which)
    if asked.together:
        check_together(asked.runs, asked.split, asked.which)
    for run in asked.runs if asked.calibrate else []:
        check_of_text(run)


def _print(figures: Figures) -> float:
    """Prints each seed, and returns the mean over those that have a best epoch."""
    for seed, value, depth in zip(figures.seeds, figures.values, figures.depths, strict=True):
        print(f"seed {seed}: {figures.metric} {value:.6g}, depth {depth:.3f}")
    known = [value for value in figures.values if not math.isnan(value)]
    missing = len(figures.values) - len(known)
    left_out = f" ({missing} of {len(figures.values)} left out: no best epoch)" if missing else ""
    mean = sum(known) / len(known) if known else math.nan
    print(f"mean: {figures.metric} {mean:.6g}{left_out}")
    return mean


def _print_calibrated(better: Calibrated, *, own: bool, besides: bool) -> None:
    """`own`: temperatures were fitted to the text that is evaluated; `besides`: models have their own too."""
    from ..training.evaluate import TEMPERATURES

    for seed, value, temperature in zip(better.seeds, better.values, better.temperatures, strict=True):
        at_end = any(math.isclose(temperature, end, rel_tol=1e-6) for end in TEMPERATURES)
        beyond = ", at the end of the searched range" if at_end else ""
        also = " in addition to its own" if besides else ""
        chosen = f"temperature {temperature:.2f}{also}{beyond}{', fitted to this text' if own else ''}"
        print(f"seed {seed}, calibrated: {better.metric} {value:.6g}, {chosen}")
