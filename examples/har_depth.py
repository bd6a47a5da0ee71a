"""Trains a classifier with the default settings on UCI HAR and draws where it takes how many inner steps.

    eirehn data har                      # once: downloads the data
    python examples/har_depth.py --out docs/images/har-depth.png

Drawn is a test window of each of four activities, the one in which depth varies most: what a phone at the waist
measures, and below it the inner steps of each time step.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from eirehn.data.har import ACTIVITIES, HarData
from eirehn.report.figures import COLOURS, dress
from eirehn.sklearn import ElasticClassifier

DRAWN = ("standing", "sitting", "walking", "walking downstairs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("har-depth.png"), help="the picture to write")
    parser.add_argument("--windows", type=int, default=1500, help="windows to train on")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    try:
        data = HarData(windows=arguments.windows, held_out=0).load()
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    x, y, x_test, y_test = (each.numpy() for part in (data.train, data.test) for each in (part.x, part.target))

    start = time.perf_counter()
    model = ElasticClassifier(epochs=arguments.epochs, random_state=0).fit(x, y)
    print(f"trained in {time.perf_counter() - start:.0f} s; test accuracy {model.score(x_test, y_test):.3f}")
    depths = model.depths(x_test)  # (N, T)
    for label, activity in enumerate(ACTIVITIES):
        print(f"{activity:20} {depths[y_test == label].mean():.2f} inner steps a time step")
    print(f"{'all':20} {depths.mean():.2f} of {model.max_depth}")
    chosen = []
    for activity in DRAWN:
        there = np.flatnonzero(y_test == ACTIVITIES.index(activity))
        chosen.append(int(there[depths[there].std(1).argmax()]))

    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    picture(x_test[chosen], depths[chosen]).savefig(arguments.out, dpi=160)
    print(f"picture: {arguments.out}")


def picture(x: np.ndarray, depths: np.ndarray) -> Figure:
    figure = Figure(figsize=(9.5, 3.4), layout="constrained")
    figure.get_layout_engine().set(rect=(0.01, 0.0, 0.99, 1.0))  # room for the labels on the left
    axes = figure.subplots(2, len(DRAWN), sharex=True, sharey="row", height_ratios=(1.4, 1))
    for (above, below), activity, signals, spent in zip(axes.T, DRAWN, x, depths, strict=True):
        dress(above)
        dress(below)
        above.set_title(activity, fontsize=11, loc="left")
        for channel in range(3):
            above.plot(signals[:, channel], color=COLOURS[channel], linewidth=1.0)
        below.fill_between(range(len(spent)), spent, step="mid", color=COLOURS[0], alpha=0.85, linewidth=0)
        below.set(xlabel="time step", xlim=(0, len(spent) - 1), ylim=(0, depths.max()))
    axes[0, 0].set_ylabel("acceleration")
    axes[1, 0].set_ylabel("inner steps")
    return figure


if __name__ == "__main__":
    main()
