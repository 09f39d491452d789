"""benchmarks/hostile_files.py on a sample of its cases: one message each, no traceback, no hang."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
hostile = importlib.import_module("hostile_files")

EVERY = 40  # of the cases; the script itself tries them all


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    return hostile.make_doors(tmp_path_factory.mktemp("doors"))


def test_hostile_files_end_with_one_message(doors):
    assert len(doors) > 10
    for number, door in enumerate(doors):
        count, wrong = hostile.try_door(door, seconds=60, every=EVERY, first=number)
        assert count >= 5
        assert wrong == []


def test_the_script_notices_tracebacks_and_hangs(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}')

    def fragile():
        import json
        import time

        content = (tmp_path / "a.json").read_text(errors="replace")
        if content == "null":
            time.sleep(30)
        return json.loads(content)["a"] + 1

    count, wrong = hostile.try_door(hostile.Door("fragile", tmp_path / "a.json", fragile), seconds=1)
    assert count > 80
    assert any("KeyError" in line for line in wrong)
    assert any("TooSlowError" in line for line in wrong)
