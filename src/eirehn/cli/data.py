"""`eirehn data`: download a data set and check it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

from .._internal.files import RunError
from .parser import make_parser, parse

NAMES = ("har", "ptb")


def data(given: list[str]) -> None:
    """Downloads a data set, checks it and saves it where trainings look for it."""
    parser = make_parser(data)
    parser.add_argument("name", type=str, help="har (UCI HAR) or ptb (Penn Treebank)")
    parser.add_argument("--from", type=Path | None, help="read this archive or folder in place of a download")
    parser.add_argument("--out", type=Path | None, help="folder of all data sets; default EIREHN_DATA_DIR")
    asked = parse(parser, given)
    if asked.name not in NAMES:
        raise ValueError(f"unknown data set {asked.name!r}; give {' or '.join(NAMES)}")
    from ..data import har, ptb
    from ..data.download import data_dir

    folder = (data_dir() if asked.out is None else asked.out) / asked.name
    done = (_har if asked.name == "har" else _ptb)(folder, asked["from"])
    print(f"{asked.name}: {'ready and checked' if done else 'already there, checked'}: {folder}")
    if asked.out is not None and asked.out.absolute() != data_dir().absolute():
        print(f"trainings read {data_dir()}; set EIREHN_DATA_DIR={asked.out.absolute()} to use this folder")
    about = har if asked.name == "har" else ptb
    for title, text in (("licence", about.LICENCE), ("please cite", about.CITATION)):
        print(textwrap.fill(f"{title}: {text}", 100, subsequent_indent="  ", break_long_words=False))


def _har(folder: Path, source: Path | None) -> bool:
    """Prepares UCI HAR; returns False where it was there already."""
    from ..data import har
    from ..data.download import fetch

    target = folder / har.FILE
    if target.exists():
        try:
            har.read(target)
        except RunError as error:
            raise RunError(f"{error}; move it away first") from error
        return False
    with TemporaryDirectory(prefix="eirehn-") as scratch:
        har.prepare(source or fetch(har.REMOTES, Path(scratch)), target)
    return True


def _ptb(folder: Path, source: Path | None) -> bool:
    from ..data import ptb

    if ptb.complete(folder):
        return False
    with TemporaryDirectory(prefix="eirehn-") as scratch:
        ptb.prepare(source or ptb.download(Path(scratch)), folder)
    return True
