"""`eirehn tune`: search for the settings of a recipe that are best on validation data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._internal.extras import need
from ..report.tables import search_table
from .common import UsageError, as_command, check_counts, displayed, on_cluster
from .parser import make_parser
from .train import SHORT, add_recipe, flags_of, parse_recipe

if TYPE_CHECKING:
    from ..training.display import Display

USAGE = "eirehn tune --recipe NAME [--trials N] [flags of eirehn train]"


def tune(given: list[str]) -> int:
    """Searches for the settings of a recipe that are best on validation data. Each trial trains the recipe with
    other values; clearly worse trials are stopped early. The same command resumes a search, and started several
    times, also on other machines, it shares the trials out. All flags of `eirehn train` describe the recipe; a
    field that is given as a flag is not searched."""
    flags = flags_of(given, "tune")
    parser = make_parser(tune, usage=USAGE)
    parser.add_argument("--trials", type=int, default=30, help="trials of the whole search")
    parser.add_argument(
        "--search",
        type=str,
        nargs="+",
        help="fields to search and their ranges, in place of the default ones: lr=1e-3:0.1:log, "
        "network.max_depth=2:6, network.weight_update=bounded,paper",
    )
    parser.add_argument("--storage", type=str | None, help="URL of a database; default study.db in the folder")
    parser.add_argument("--jobs", type=int | None, help="parallel trials; default one for each core, on a GPU 2")
    parser.add_argument("--dask", type=str | None, help="address of a dask scheduler, to run on its cluster")
    parser.add_argument("--out", type=Path | None, help="folder of the search; default runs/tune-NAME")
    if "--help" in flags:
        parser.print_help()
        return 0
    if not {"--recipe", "--config", "--data.kind"} & set(flags):
        raise UsageError("--recipe is missing: a recipe of `eirehn recipes` (eirehn tune --help)")
    add_recipe(parser, flags)
    asked, recipe = parse_recipe(parser, flags)
    check_counts(asked, "trials", "jobs")
    need("optuna", "jinja2", "matplotlib")  # before anything is trained
    from ..experiments.search import Search
    from ..experiments.search import tune as carry_out
    from ..experiments.search_space import default_space, read_space

    fixed = {flag.removeprefix("--") for flag in flags}
    short = {flag.removeprefix("--"): field.removeprefix("--") for flag, field in SHORT.items()}
    space = read_space(recipe, asked.search, short, fixed) if asked.search else default_space(recipe, fixed)
    if not space:
        raise UsageError("nothing is left to search: all fields are given as flags")
    folder = asked.out or Path("runs") / f"tune-{recipe.name}"
    search = Search(folder, recipe, space, asked.trials, asked.storage)

    def work(display: Display) -> dict[str, Any]:
        command = as_command(["tune", *given])
        return {"found": carry_out(search, command=command, jobs=asked.jobs, tell=display, say=display.print)}

    with on_cluster(asked.dask):
        found = displayed(work)["found"]
    print(search_table(found))
    print(f"best settings: {folder / 'best.yaml'} (eirehn train --config {folder / 'best.yaml'})")
    print(f"results: {folder / 'results.json'}\nreport: {folder / 'report.html'}")
    return 0
