"""Writes the models that come with the package, `eirehn.load("har-best")` and `eirehn.load("synthetic-best")`.

    eirehn data har                                                          # once: downloads the data
    eirehn train --recipe har-best --seed 0 --out runs/har-best              # minutes
    eirehn train --recipe synthetic-best --seed 0 --out runs/synthetic-best  # an hour
    python examples/trained_models.py runs/har-best runs/synthetic-best

`make trained` does all of it. The weights are evaluated on the test data once more after they are written, and the
model card has the result.
"""

import argparse
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import eirehn
from eirehn._internal.files import RunError, read_json
from eirehn.data.dataset import moments
from eirehn.data.har import CITATION, LICENCE, SIGNALS, HarData
from eirehn.models import Scaling
from eirehn.recipes import find
from eirehn.training.run import RunFolder

ABOUT = {
    "har": f"""UCI HAR: a phone at the waist, at 50 Hz. The data are not part of the package.

- Source: {CITATION}
- Licence: {LICENCE}

A window has 128 time steps of 9 signals, in the units of UCI HAR: {", ".join(SIGNALS)}.
The model reads four time steps at once: `model.predict(windows.reshape(-1, 32, 36))` for windows `(B, 128, 9)`.
""",
    "synthetic": """`eirehn.data.SyntheticData()`, the regression task of the paper: at each time step, the next
point of a sequence is predicted.
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of trained runs")
    parser.add_argument("--out", type=Path, default=Path("src/eirehn/models/trained"))
    arguments = parser.parse_args()
    for run in arguments.runs:
        try:
            write(run, arguments.out)
        except (RunError, ValueError) as error:
            sys.exit(str(error))


def write(run: Path, out: Path) -> None:
    recipe, result = RunFolder(run).recipe(), read_json(run / "result.json")
    if differing := recipe.differences(replace(find(recipe.name), seeds=recipe.seeds)):
        raise ValueError(f"{run} differs from the recipe {recipe.name} in {', '.join(differing)}")
    model, data, folder = eirehn.load(run), recipe.data, out / recipe.name
    if isinstance(data, HarData):  # the model takes the units of the sensors
        windows = replace(data, standardise=False, frame=1).load().train.x  # (N, 128, 9)
        mean, scale = moments(windows.flatten(0, 1).double().numpy(), True)
        model.scaling = Scaling(tuple(mean) * data.frame, tuple(scale) * data.frame)
        data = replace(data, standardise=False)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    test, shipped = data.load().test, eirehn.load(folder)
    if shipped.classes:
        value = (shipped(test.x).argmax(-1) == test.target).double().mean().item()
    else:
        value = (shipped(test.x) - test.target).double().square().mean().item()
    if abs(value - model.results["value"]) > 1e-6 * value:
        sys.exit(f"{folder} has {value} on the test data, and {run} has {model.results['value']}")
    command = f"eirehn train --recipe {recipe.name} --seed {model.results['seed']}"
    where = f"Commit {result['commit']}, {result['machine']}, torch {result['versions']['torch']}."
    with open(folder / "README.md", "a", encoding="utf-8") as card:
        card.write(f"\n## Data\n\n{ABOUT[data.kind]}\n## Training\n\n`{command}`. {where}\n")
    print(f"{folder}: {model.results['metric']} {value:.6g}")


if __name__ == "__main__":
    main()
