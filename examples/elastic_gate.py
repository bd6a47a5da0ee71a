"""Draws the elastic gate: how deep a unit may go, and how an input shortens that.

python examples/elastic_gate.py --out gate.png
"""

import argparse
from pathlib import Path

from eirehn.report.figures import gate_figure

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", type=Path, default=Path("elastic-gate.png"), help="the picture to write")
arguments = parser.parse_args()
arguments.out.parent.mkdir(parents=True, exist_ok=True)
gate_figure().savefig(arguments.out, dpi=160)
print(arguments.out)
