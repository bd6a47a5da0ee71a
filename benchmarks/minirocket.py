"""MiniRocket with a ridge classifier on UCI HAR: a reference that is not a recurrent network.

    pip install aeon
    python benchmarks/minirocket.py [--json results/minirocket-har.json]

Needs the data set (`eirehn data har`). Three seeds, minutes each on a CPU; trained on the training part, tested on
the test part, with aeon's default settings.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

from eirehn._internal.files import write_json
from eirehn.experiments.compare import references
from eirehn.recipes import har
from eirehn.training.provenance import provenance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("results/minirocket-har.json"), help="file to write")
    path = parser.parse_args().json
    if importlib.util.find_spec("aeon") is None:
        sys.exit("aeon is not installed: pip install aeon")
    found = {"experiment": "minirocket-har", "command": "python benchmarks/minirocket.py", **provenance()}
    found["rows"] = references(har.best())
    write_json(path, found)
    for row in found["rows"]:
        print(f"{row['label']}: {row['mean']:.4f} ± {row['std']:.4f}, {row['seconds']:.0f} s a seed")


if __name__ == "__main__":
    main()
