"""Writes the tables of results/*.json into README.md and the documentation, each between its two marks.

python examples/readme_table.py          # writes
python examples/readme_table.py --check  # exit code 1 where they differ
"""

import argparse
import importlib
import json
import re
import sys
from pathlib import Path

from eirehn.report.tables import comparison_table, markdown_table

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))))
BENCHMARKS = ("elastic_depth", "explosion", "stability")  # which make the tables of their results themselves
TABLE = re.compile(r"(?P<begin><!-- (?P<file>results/[\w-]+\.json) -->\n).*?(?P<end><!-- end -->\n)", re.DOTALL)


def with_tables(text: str, root: Path) -> str:
    def table(found: re.Match[str]) -> str:
        path = root / found["file"]
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
