"""`eirehn reproduce`: the tables of the paper, and Figure 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._internal.checks import nearest
from .._internal.extras import need
from .._internal.files import replacing, write_json
from ..report.tables import markdown_table
from .common import (
    UsageError,
    as_command,
    check_can_be_written,
    check_counts,
    displayed,
    diverged,
    exit_code,
    on_cluster,
)
from .parser import make_parser, parse

if TYPE_CHECKING:
    from ..experiments import Experiment
    from ..training.config import Recipe
    from ..training.display import Display


def reproduce(given: list[str]) -> int:
    """Trains the models of a table of the paper and writes results.json and report.html."""
    parser = make_parser(reproduce)
    parser.add_argument("name", type=str, help="synthetic, weight-updates, har, ptb or figure1")
    parser.add_argument("--quick", action="store_true", help="a reduced run: few epochs and two seeds")
    parser.add_argument("--epochs", type=int | None, help="epochs, in place of those of the recipes")
    parser.add_argument("--seeds", type=int | None, help="number of seeds")
    parser.add_argument("--sequences", type=int | None, help="number of training sequences, or tokens of a text")
    parser.add_argument("--rows", type=str, nargs="+", help="train only these rows, by the names of their recipes")
    parser.add_argument("--out", type=Path | None, help="folder of the runs, results and report; default runs/NAME")
    parser.add_argument("--jobs", type=int | None, help="parallel runs; default one for each core, on a GPU 2")
    parser.add_argument("--dask", type=str | None, help="address of a dask scheduler, to run on its cluster")
    parser.add_argument("--results", type=Path | None, help="also write the results to this file")
    asked = parse(parser, given)
    check_can_be_written("--results", asked.results)
    check_counts(asked, "jobs", "epochs", "seeds", "sequences")
    if asked.name == "figure1":
        _figure1(asked.out or Path("runs/figure1"))
        return 0
    need("jinja2", "matplotlib")  # for the report, before anything is trained
    from ..experiments import Cut, experiments
    from ..experiments.reproduce import reproduce as carry_out
    from ..training.callbacks import seeds_in_words, stopped_seeds

    known = experiments()
    if asked.name not in known:
        raise UsageError(f"unknown experiment {asked.name!r}; give {', '.join(known)} or figure1")
    experiment = known[asked.name]
    folder = asked.out or Path("runs") / (asked.name + ("-quick" if asked.quick else ""))
    base = experiment.quick if asked.quick else Cut()
    named = {name: asked[name] for name in ("epochs", "seeds", "sequences") if asked[name] is not None}
    cut = replace(base, **named)

    def work(display: Display) -> dict[str, Any]:
        def ended(recipe: Recipe, result: dict[str, Any]) -> None:
            values = [value for value in result["values"] if not diverged(value)]
            mean = f"{sum(values) / len(values):.4g}" if values else "diverged"
            stopped = list(stopped_seeds(recipe.seeds, result))
            early = f"; training of {seeds_in_words(stopped)} stopped early" if stopped else ""
            display.print(f"{recipe.name}: test {result['metric']} {mean} in {result['seconds']:.0f} s{early}")

        return carry_out(
            experiment,
            folder,
            command=as_command(["reproduce", *given]),
            only=chosen_rows(experiment, asked.rows),
            cut=cut,
            jobs=asked.jobs,
            tell=display,
            ended=ended,
        )

    with on_cluster(asked.dask):
        results = displayed(work)
    if asked.results is not None:
        write_json(asked.results, results)
    print(markdown_table(results))
    print(f"results: {folder / 'results.json'}\nreport: {folder / 'report.html'}")
    return exit_code(results)


def chosen_rows(experiment: Experiment, asked: Sequence[str] | None) -> list[str] | None:
    """The rows of these names, which may be given without the name of the experiment."""
    if asked is None:
        return None
    known = [recipe.name for recipe in experiment.rows]
    names = [name for each in asked for name in each.split(",")]
    names = [long if (long := f"{experiment.name}-{name}") in known else name for name in names]
    for name in names:
        if name not in known:
            raise UsageError(f"{experiment.name} has no row {name!r}; did you mean {nearest(name, known)!r}?")
    return names


def _figure1(folder: Path) -> None:
    from ..report.figures import figure1

    figure = figure1()
    for suffix in ("png", "svg"):
        path = folder / f"figure1.{suffix}"
        with replacing(path) as file:
            figure.savefig(file, format=suffix, dpi=160)
        print(path)
