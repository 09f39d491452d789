"""Write tests/slow.txt, the tests that `make test-fast` leaves out, from what pytest has measured.

python -m pytest -q -vv --durations=0 > durations.txt      (in parts, if you like: one file for each)
python tools/slow_tests.py durations.txt... [--limit 0.3] [--keep]

A test function counts with all its parameters and fixtures. Where nearly all of a file's time is slow, the whole file
is left out, and so is not even imported. --keep leaves what is listed and was not measured this time.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path

LIST = Path(__file__).resolve().parents[1] / "tests" / "slow.txt"
ROW = re.compile(r"([\d.]+)s (?:call|setup|teardown) +(tests/[^:]+\.py)::(\w+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("durations", nargs="+", type=Path)
    parser.add_argument("--limit", type=float, default=0.3, help="seconds of one function")
    parser.add_argument("--keep", action="store_true", help="add to the list")
    options = parser.parse_args()
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # by file and function
    for file in options.durations:
        for taken, path, function in ROW.findall(file.read_text(encoding="utf-8", errors="replace")):
            seconds[path][function] += float(taken)
    before = LIST.read_text(encoding="utf-8").split() if options.keep else []
    measured = {f"{path}::{function}" for path, functions in seconds.items() for function in functions}
    listed = {line for line in before if line not in measured | seconds.keys()}
    for path, functions in seconds.items():
        slow = {function: taken for function, taken in functions.items() if taken > options.limit}
        rest = sum(functions.values()) - sum(slow.values())
        if slow and rest < 0.1 * sum(slow.values()) and sum(slow.values()) > 10 * options.limit:
            listed.add(path)
        else:
            listed |= {f"{path}::{function}" for function in slow}
    LIST.write_text("".join(f"{line}\n" for line in sorted(listed)), encoding="utf-8")
    print(f"{LIST}: {len(listed)} lines")


if __name__ == "__main__":
    main()
