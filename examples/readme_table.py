"""Writes the tables of README.md and of the documentation from the files in results/, each between two marks.

python examples/readme_table.py          # writes
python examples/readme_table.py --check  # exit code 1 where they differ
"""

import argparse
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from eirehn.report.tables import (
    METRICS,
    Row,
    aligned,
    comparison_table,
    count,
    floor_of,
    markdown_table,
    measured,
    metric_of,
    printed,
    results_table,
    with_spread,
)

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))))
BENCHMARKS = (
    "elastic_depth",
    "episodes",
    "explosion",
    "onnx_speed",
    "stability",
)  # which make the tables of their results themselves
TABLE = re.compile(
    r"(?P<begin><!-- (?P<source>results/[\w-]+\.json|summary|speed) -->\n).*?(?P<end><!-- end -->\n)", re.DOTALL
)
TASKS = {
    "synthetic": "regression, synthetic",
    "har": "activity recognition, UCI HAR",
    "ptb": "words, Penn Treebank",
}
AWD_LSTM = 57.3  # test perplexity, 24M parameters: Merity, Keskar and Socher, 2018
SPEED = (  # device, row of results/speed-DEVICE.json, what it is
    ("cpu", "HAR", "training step, 48 units, batch of 200, 128 time steps, 4 inner steps"),
    ("cpu", "streaming", "one sequence, 20 units, 20 time steps, 6 inner steps, inference"),
    ("cpu", "word, H=1200", "one time step, 1200 units, 4 inner steps, inference"),
    ("gpu", "HAR", "training step, 48 units, batch of 200, 128 time steps, 4 inner steps"),
)


def stored(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))
    return content


def summary() -> str:
    """A row per task: EI-REHN, the best other layer that is not larger, our own recipe, a reference."""
    lines = [["", "EI-REHN", "published", "best other layer, not larger", "EI-REHN, our recipe", "reference"]]
    for name, title in TASKS.items():
        results = stored(name)
        rows, metric = results_table(results), metric_of(results)
        sign = 1 if metric.lower_is_better else -1
        own = next(row for row in rows if row.recipe == f"{name}-best")
        ours = next(row for row in rows if row.paper_best)
        others = [row for row in rows if row.model != ours.model and row.parameters <= ours.parameters]
        other = min(others, key=lambda row: sign * row.mean)

        def cell(row: Row, scale: float = metric.scale) -> str:
            return f"{with_spread(row.mean * scale, row.std * scale)} ({count(row.parameters)})"

        reference = {
            "synthetic": f"{measured(floor_of(results) * metric.scale)}, lower bound",
            "har": _minirocket(),
            "ptb": f"{AWD_LSTM}, AWD-LSTM",
        }[name]
        unit = f" {metric.metric_unit}" if metric.metric_unit else ""
        title = f"{title}: {metric.metric_name}{unit} {'↓' if metric.lower_is_better else '↑'}"
        lines.append(
            [
                title,
                cell(ours),
                printed(ours.paper * metric.scale),
                f"{other.label}: {cell(other)}",
                cell(own),
                reference,
            ]
        )
    return aligned(lines)


def _minirocket() -> str:
    (row,) = stored("minirocket-har")["rows"]
    return f"{measured(row['mean'] * METRICS['accuracy'].scale)}, MiniRocket"


def speed() -> str:
    lines = [["", "machine", "EI-REHN, ms", "nn.LSTM, ms", "ratio"]]
    for device, name, title in SPEED:
        row = stored(f"speed-{device}")["rows"][name]
        ours, lstm = (row["ms"][each]["median"] for each in ("ours", "LSTM"))
        machine = {"cpu": "CPU, 2 cores", "gpu": "GPU, H200"}[device]
        lines.append([title, machine, f"{ours:.3g}", f"{lstm:.3g}", f"{row['times_lstm']['median']:.1f}"])
    return aligned(lines)


def with_tables(text: str, root: Path) -> str:
    def table(found: re.Match[str]) -> str:
        if found["source"] in ("summary", "speed"):
            return f"{found['begin']}{summary() if found['source'] == 'summary' else speed()}\n{found['end']}"
        path = root / found["source"]
        results, name = json.loads(path.read_text("utf-8")), path.stem.replace("-", "_")
        if name in BENCHMARKS:
            text = importlib.import_module(name).table(results)
        else:
            text = (comparison_table if name.startswith("compare_") else markdown_table)(results)
        return f"{found['begin']}{text.rstrip()}\n{found['end']}"

    return TABLE.sub(table, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where they differ")
    check = parser.parse_args().check
    sys.path.insert(0, str(ROOT / "benchmarks"))
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        new = with_tables(text, ROOT)
        if check and text != new:
            sys.exit(f"the tables in {page} are not those of results: make readme-table")
        if not check:
            (ROOT / page).write_text(new, "utf-8")


if __name__ == "__main__":
    main()
