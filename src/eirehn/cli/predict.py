"""`eirehn predict`: what a trained model predicts for new files."""

from __future__ import annotations

from pathlib import Path

from ..data.table_write import WRITTEN, write_table
from .common import UsageError, check_apart, check_can_be_written
from .parser import add_model_options, make_parser, parse


def predict(given: list[str]) -> None:
    """Predicts the class of each sequence of a file, with the probabilities of all classes, or its number; with a
    language model, the most probable next words after each line of a text."""
    parser = make_parser(predict)
    parser.add_argument("run", type=Path, help="folder of the run; of several seeds, the best is used")
    parser.add_argument(
        "file", type=Path, help="CSV, Parquet or npz file like the training data, without a target; or a text file"
    )
    parser.add_argument("--out", type=Path | None, help="CSV or Parquet file to write; default CSV to the terminal")
    parser.add_argument("--depths", action="store_true", help="add a column with the mean depth of each sequence")
    parser.add_argument("--top", type=int | None, help="next words for each line of a text; default 5")
    add_model_options(parser)
    asked = parse(parser, given)
    if asked.out is not None and asked.out.suffix.lower() not in WRITTEN:
        raise UsageError(f"--out must end in {' or '.join(WRITTEN)}, got {asked.out.name!r}")
    check_can_be_written("--out", asked.out)
    check_apart("--out", asked.out, asked.run)
    if asked.out is not None and asked.out.exists() and asked.file.exists() and asked.out.samefile(asked.file):
        raise UsageError(f"--out must be a file of its own, and {asked.out} is the file to predict for")
    from ..training.predict import predict as predicted

    options = {name: asked[name] for name in ("which", "max_depth", "device", "top", "depths")}
    columns, rows = predicted(asked.run, asked.file, **options)
    write_table(columns, rows, asked.out)
