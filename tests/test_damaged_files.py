"""benchmarks/damaged_files.py on a sample of its cases: damaged files are gone around, or named in one message."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
damaged = importlib.import_module("damaged_files")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return {scene.name: scene for scene in damaged.make_scenes(tmp_path_factory.mktemp("scenes") / "all")}


@pytest.mark.parametrize(("name", "every"), [("store", 2), ("build", 2), ("pretraining", 16), ("finetuning", 16)])
def test_damage_is_gone_around_or_named(scenes, name, every):
    count, wrong = damaged.try_scene(scenes[name], regions=3, together=8, every=every)
    assert count >= 3
    assert wrong == []


def test_the_script_notices_what_goes_wrong(scenes, tmp_path):
    build = scenes["build"]

    def careless(out):
        (out / "build" / "plan.json").read_text(encoding="utf-8").index("sources")
        return {"files": str(len(list(out.iterdir())))}

    scene = damaged.Scene("careless", build.folder, careless, build.must_recover)
    _, wrong = damaged.try_scene(scene, regions=12, together=0)
    assert any("remove build/plan.json" in line and "FileNotFoundError" in line for line in wrong)
    assert any("remove part-00000.arrow" in line and "ends with another result" in line for line in wrong)
