"""`eirehn data`: a data set fetched, checked and put where trainings look for it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import RunError
from .folder import data_dir

if TYPE_CHECKING:
    from rich.console import Console

NAMES = ("har", "ptb")


def provide(name: str, source: Path | None, out: Path | None, console: Console) -> None:
    """Puts a data set into its folder under `out`, from `source` or where it is published, and tells of it."""
    if name not in NAMES:
        raise ValueError(f"there is no data set {name!r}; there are {', '.join(NAMES)}")
    folder = (data_dir() if out is None else out) / name
    done = (_har if name == "har" else _ptb)(folder, source, console)
    print(f"{name}: {'ready and checked' if done else 'already there, checked'}: {folder}")
    if out is not None and out.absolute() != data_dir().absolute():
        print(f"trainings look for it in {data_dir()}; set EIREHN_DATA_DIR={out.absolute()} to use this one")
    from . import har, ptb

    about = har if name == "har" else ptb
    for title, text in (("licence", about.LICENCE), ("please cite", about.CITATION)):
        print(textwrap.fill(f"{title}: {text}", 100, subsequent_indent="  ", break_long_words=False))


def _har(folder: Path, source: Path | None, console: Console) -> bool:
    """Whether there was anything to do."""
    from . import har
    from .download import fetch_any
    from .progress import bar

    target = folder / har.FILE
    if target.exists():
        try:
            har.read(target)
        except RunError as error:
            raise RunError(f"{error}; move it away first") from error
        return False
    if source is not None:
        har.prepare(source, target)
        return True
    had = {remote.name for remote in har.REMOTES if (folder / remote.name).exists()}
    with bar("UCI HAR", console) as tell:
        archive = fetch_any(har.REMOTES, folder, tell=tell)
    har.prepare(archive, target)
    if archive.name not in had:
        archive.unlink()  # what is of use in it is in the target now
    return True


def _ptb(folder: Path, source: Path | None, console: Console) -> bool:
    from . import ptb
    from .progress import bar

    if ptb.complete(folder):
        return False
    if source is not None:
        ptb.prepare(source, folder)
        return True
    with bar("Penn Treebank", console) as tell:
        ptb.download(folder, tell)
    return True
