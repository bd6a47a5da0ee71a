"""Runs the tutorials and keeps their outputs: `make tutorials`.

    python docs/tutorials/execute.py                  # all of them
    python docs/tutorials/execute.py NOTEBOOK.ipynb   # one

Two of them need data: `eirehn data har` and `eirehn data ptb`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def executed(
    path: Path, parameters: str | None = None
) -> nbformat.NotebookNode:
    """The notebook with its outputs.

    `parameters`, where given, replaces the cell that has this tag.
    """
    notebook = nbformat.read(path, as_version=4)
    if parameters is not None:
        (cell,) = (
            each
            for each in notebook.cells
            if "parameters" in each.metadata.get("tags", ())
        )
        cell.source = parameters
    NotebookClient(
        notebook,
        timeout=600,
        record_timing=False,
        coalesce_streams=True,
    ).execute()
    # Without the version, which differs from machine to machine.
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "notebooks", nargs="*", type=Path, help="all if none is named"
    )
    for path in parser.parse_args().notebooks or sorted(
        FOLDER.glob("*.ipynb")
    ):
        nbformat.write(executed(path), path)
        print(
            f"{path.name}: {path.stat().st_size / 1024:.0f} KiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
