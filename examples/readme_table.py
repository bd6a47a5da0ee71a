"""Writes the tables of results/*.json into README.md, each between its two marks.

python examples/readme_table.py          # writes
python examples/readme_table.py --check  # exit code 1 where they differ
"""

import argparse
import json
import re
import sys
from pathlib import Path

from eirehn.report.table import markdown_table

ROOT = Path(__file__).parent.parent
TABLE = re.compile(r"(?P<begin><!-- (?P<file>results/[\w-]+\.json) -->\n).*?(?P<end><!-- end -->\n)", re.DOTALL)


def with_tables(text: str, root: Path) -> str:
    def table(found: re.Match[str]) -> str:
        results = json.loads((root / found["file"]).read_text("utf-8"))
        return f"{found['begin']}{markdown_table(results).rstrip()}\n{found['end']}"

    return TABLE.sub(table, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where they differ")
    check = parser.parse_args().check
    readme = ROOT / "README.md"
    text = readme.read_text("utf-8")
    if not TABLE.search(text):
        sys.exit("README.md lacks the marks <!-- results/….json --> and <!-- end --> of a table")
    new = with_tables(text, ROOT)
    if check and text != new:
        sys.exit("the tables in README.md are not those of results: make readme-table")
    if not check:
        readme.write_text(new, "utf-8")


if __name__ == "__main__":
    main()
