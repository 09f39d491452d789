"""Commands that run side by side, each with a log: shared by adapter_scores.py and few_labels.py."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_side_by_side(commands: Mapping[str, Sequence[str]], logs: Path, jobs: int) -> None:
    """Run each named Python command (script, arguments), so many at a time in the given order; exit 1 if one fails."""
    logs.mkdir(parents=True, exist_ok=True)

    def run(name: str) -> int:
        began = time.monotonic()
        with (logs / f"{name}.log").open("w", encoding="utf-8") as log:
            code = subprocess.run([sys.executable, *commands[name]], stdout=log, stderr=subprocess.STDOUT).returncode
        how = f"done in {time.monotonic() - began:.0f} s" if code == 0 else f"failed, see {log.name}"
        print(f"{name}: {how}", flush=True)
        return code

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        codes = list(pool.map(run, commands))
    if any(codes):
        raise SystemExit(1)
