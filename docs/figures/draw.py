"""Figures 2 and 3 of the paper: the inner step of EI-REHN, and a language model made of it, as vector drawings."""

import argparse
from pathlib import Path

import matplotlib
from inner_step import figure2
from language_model import figure3

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("docs/images"), help="the folder to write to")
parser.add_argument("--format", choices=("svg", "pdf", "png"), default="svg", help="svg and pdf are vectors")
arguments = parser.parse_args()
arguments.out.mkdir(parents=True, exist_ok=True)
for name, figure in (("inner-step", figure2()), ("language-model", figure3())):
    path = arguments.out / f"{name}.{arguments.format}"
    dateless = {"Date": None} if arguments.format == "svg" else {}
    # Letters as outlines look the same wherever the picture is shown; a fixed salt gives the same file every time.
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(path, metadata=dateless, dpi=160)
    print(path)
