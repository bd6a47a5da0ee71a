"""Writes the table of results/synthetic.json into README.md, between its two marks.

python examples/readme_table.py          # writes
python examples/readme_table.py --check  # exit code 1 where they differ
"""

import argparse
import json
import sys
from pathlib import Path

from eirehn.report.table import markdown_table

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- results/synthetic.json -->\n", "<!-- end -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where they differ")
    check = parser.parse_args().check
    readme = ROOT / "README.md"
    before, begin, rest = readme.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"README.md lacks one of its marks {BEGIN.strip()} and {END.strip()}")
    results = json.loads((ROOT / "results" / "synthetic.json").read_text("utf-8"))
    text = f"{before}{BEGIN}{markdown_table(results).rstrip()}\n{END}{after}"
    if check and text != readme.read_text("utf-8"):
        sys.exit("the table in README.md is not that of results/synthetic.json: make readme-table")
    if not check:
        readme.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
