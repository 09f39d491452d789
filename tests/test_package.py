"""The package's metadata agree everywhere: version, dependencies, extras, licences."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import yaml

import litebert
from litebert.cli.doctor import CORE
from litebert.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS_OF_USERS = {
    name: part for name, part in PROJECT["optional-dependencies"].items() if name not in ("all", "dev", "docs")
}


def name_of(requirement: str) -> str:
    """The distribution of a requirement, as pip compares names: "PyYAML>=6" -> "pyyaml"."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def test_the_version_has_one_source():
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert re.fullmatch(r"\d+\.\d+\.\d+", litebert.__version__)


def test_the_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == litebert.__version__
    assert citation["license"] == PROJECT["license"]
    (paper,) = citation["references"]
    assert paper["title"].startswith("ALBERT: A Lite BERT")
    assert len(paper["authors"]) == 6


def test_the_changelog_keeps_its_shape():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)$", text, flags=re.M)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    kinds = set(re.findall(r"^### (.*)$", text, flags=re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_doctor_knows_every_dependency():
    assert {name_of(name) for name in CORE} == {name_of(each) for each in PROJECT["dependencies"]}
    assert set(EXTRAS) == set(EXTRAS_OF_USERS)
    assert PROJECT["optional-dependencies"]["all"] == [f"litebert[{','.join(EXTRAS_OF_USERS)}]"]


def test_every_dependency_is_listed_with_its_licence():
    text = (ROOT / "THIRD_PARTY_LICENSES.md").read_text(encoding="utf-8")
    listed = {row[0]: row for row in re.findall(r"^\| (\S+) \| ([^|]+) \| ([^|]+) \|$", text, flags=re.M)}
    for part, requirements in {"core": PROJECT["dependencies"], **EXTRAS_OF_USERS}.items():
        for requirement in requirements:
            _, needed_by, licence = listed[name_of(requirement)]
            assert needed_by in (part, f"[{part}]")
            assert licence.strip()


def test_versions_that_are_tested_are_told():
    said = [text for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert said[0].endswith(PROJECT["requires-python"].removeprefix(">="))


def test_the_sdist_holds_every_readme(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (sdist,) = tmp_path.iterdir()
    with tarfile.open(sdist) as archive:
        held = {Path(name).name for name in archive.getnames() if name.count("/") == 1}
    readmes = {path.name for path in ROOT.glob("README*.md")}
    assert len(readmes) > 1
    assert readmes <= held
