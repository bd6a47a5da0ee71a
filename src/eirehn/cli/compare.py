"""`eirehn compare`: layers of equal size on the same data."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._internal.extras import need
from .._internal.files import write_json
from .common import UsageError, as_command, check_can_be_written, check_counts, displayed, exit_code, on_cluster
from .parser import make_parser, parse

if TYPE_CHECKING:
    from ..experiments.tuning import Comparison
    from ..training.config import Recipe
    from ..training.display import Display

TASKS = ("synthetic", "har", "ptb")


def compare(given: list[str]) -> int:
    """Compares layers of equal size on a task of the paper or on your own file. Each layer is tuned on validation
    data with the same number of trials, then trained with several seeds, and its test metrics are reported. The
    same command resumes a comparison that was stopped."""
    name = next((word for word in given if not word.startswith("-")), "")
    parser = make_parser(compare)
    parser.add_argument("name", type=str, help="synthetic, har, ptb, or your own CSV, Parquet or npz file")
    parser.add_argument("--layers", type=str | None, help="default LSTM,GRU,RHN,SRHN,SREHN,EIREHN; also RNN, ACT")
    parser.add_argument(
        "--parameters", type=int | None, help="parameters of each model; default those of the best recipe"
    )
    parser.add_argument("--trials", type=int | None, help="settings tried for each layer; default 20, for a text 3")
    parser.add_argument("--tuning_epochs", type=int | None, help="epochs of a trial")
    parser.add_argument("--epochs", type=int | None, help="epochs of the final trainings")
    parser.add_argument("--seeds", type=int | None, help="number of seeds of the final trainings")
    parser.add_argument("--quick", action="store_true", help="a reduced run: two trials and two epochs each")
    parser.add_argument("--out", type=Path | None, help="folder of the runs and results; default runs/compare-NAME")
    parser.add_argument("--jobs", type=int | None, help="parallel runs; default one for each core, on a GPU 2")
    parser.add_argument("--dask", type=str | None, help="address of a dask scheduler, to run on its cluster")
    parser.add_argument("--results", type=Path | None, help="also write the results to this file")
    if name not in TASKS:
        from ..data.table import FileData

        parser.add_class_arguments(FileData, "data", skip={"path", "sha256"})
    asked = parse(parser, given)
    check_can_be_written("--results", asked.results)
    check_counts(asked, "parameters", "trials", "tuning_epochs", "epochs", "seeds", "jobs")
    need("optuna", "jinja2", "matplotlib")  # before anything is trained
    from ..experiments.compare import compare as carry_out
    from ..experiments.compare import has_report
    from ..report.tables import comparison_table

    compared = _compared(asked)
    folder = asked.out or Path("runs") / f"compare-{compared.name}{'-quick' if asked.quick else ''}"

    def work(display: Display) -> dict[str, Any]:
        def ended(recipe: Recipe, result: dict[str, Any]) -> None:
            display.print(f"{recipe.name}: {result['seconds']:.0f} s")

        command = as_command(["compare", *given])
        return carry_out(compared, folder, command=command, jobs=asked.jobs, tell=display, ended=ended)

    with on_cluster(asked.dask):
        results = displayed(work)
    if asked.results is not None:
        write_json(asked.results, results)
    print(comparison_table(results))
    if compared.base.data.task == "classification" and not asked.quick and find_spec("aeon") is None:
        print("MiniRocket was skipped: to add it, pip install aeon and run the same command again")
    print(f"results: {folder / 'results.json'}")
    if has_report(compared.base):
        print(f"report: {folder / 'report.html'}")
    return exit_code(results)


def _compared(asked: Any) -> Comparison:
    from ..experiments.compare import comparison, comparison_on

    if asked.name in TASKS:
        compared = comparison(asked.name)
    else:
        from ..data.table import FileData

        if not Path(asked.name).suffix:
            raise UsageError(f"unknown task {asked.name!r}; give {', '.join(TASKS)} or your own file")
        compared = comparison_on(FileData(path=asked.name, **asked.data.as_dict()).pinned())
    if asked.quick:
        compared = compared.smaller()
    base = compared.base
    if asked.epochs is not None:
        base = replace(base, optimisation=replace(base.optimisation, epochs=asked.epochs))
    if asked.seeds is not None:
        base = replace(base, seeds=tuple(range(asked.seeds)))
    changes = {name: asked[name] for name in ("parameters", "trials", "tuning_epochs") if asked[name] is not None}
    if asked.layers is not None:
        changes["layers"] = _layers(asked.layers)
    return replace(compared, base=base, **changes)


def _layers(asked: str) -> tuple[str, ...]:
    from .._internal.checks import nearest
    from ..models.config import KINDS

    names = [name.strip().upper().replace("-", "") for name in asked.split(",")]
    for name in names:
        if name not in KINDS:
            raise UsageError(f"unknown layer {name!r}; did you mean {nearest(name, KINDS)!r}?")
    if len(set(names)) < len(names):
        raise UsageError(f"--layers must name each layer once, got {asked}")
    return tuple(names)
