from __future__ import annotations

import os

from litebert import machine
from litebert.machine import usable_cores, usable_cpus


def test_usable_cpus_reads_affinity_and_quota(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    for text, expected in [("max 100000", 64), ("250000 100000", 3), ("50000 100000", 1), ("", 64)]:
        monkeypatch.setattr(machine.Path, "read_text", lambda path, text=text: text)
        assert usable_cpus() == expected


def test_two_cpus_of_one_core_count_once(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "CPU_FOLDER", tmp_path)
    monkeypatch.setattr(machine, "usable_cpus", lambda: 6)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 4, 5, 6}, raising=False)
    assert usable_cores() == 6  # nothing is told
    for number in range(8):
        (tmp_path / f"cpu{number}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "topology" / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    assert usable_cores() == 3
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)  # a quota
    assert usable_cores() == 2
