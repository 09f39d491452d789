"""Write THIRD_PARTY_LICENSES.md: what is installed with litebert, and under which licences.

    python tools/licenses.py

Read from the metadata of the distributions installed here; the wheel itself contains none of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from package import closure
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "THIRD_PARTY_LICENSES.md"
FOR_DEVELOPERS = ("dev", "docs", "all")
# What authors write in place of an SPDX expression.
SPDX = {
    "Apache Software License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
HEAD = """# Licences of what litebert needs

litebert is under the Apache License 2.0 (`LICENSE`). Its wheel and sdist contain no code of others; `pip` installs
these distributions beside it, each under its own licence, whose text it carries. This list is made by
`python tools/licenses.py` from their own metadata. CUDA builds of torch also bring NVIDIA's libraries, under NVIDIA's
licences.
"""


def direct_dependencies() -> dict[str, list[Requirement]]:
    """Requirements of pyproject.toml by part: {"core": [torch>=2.11, ...], "hf": [...], ...}."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    parts = {"core": project["dependencies"], **{name: part for name, part in extras if name not in FOR_DEVELOPERS}}
    return {name: [Requirement(text) for text in part] for name, part in parts.items()}


def licence_of(installed: Distribution) -> str:
    """The SPDX expression of a distribution, or what its authors say instead: torch -> "BSD-3-Clause"."""
    about = installed.metadata
    if "License-Expression" in about:
        return about["License-Expression"]
    said = [
        line.rpartition("::")[2].strip() for line in about.get_all("Classifier", []) if line.startswith("License ::")
    ]
    said = [word for word in said if word != "OSI Approved"]
    if not said and "License" in about:
        said = [about["License"].split("\n")[0].strip()]
    return " or ".join(SPDX.get(word, word) for word in said)


def rows_of(found: Iterable[str], part: str) -> list[str]:
    """A line of the table for each distribution, by name."""
    return [f"| {name} | {part} | {licence_of(distribution(name))} |" for name in sorted(found)]


def notices() -> str:
    """The whole page."""
    lines, listed = [HEAD, "| distribution | needed by | licence |", "|---|---|---|"], set[str]()
    parts = direct_dependencies()
    for part, requirements in parts.items():
        names = {canonicalize_name(each.name) for each in requirements} - listed
        lines += rows_of(names, part if part == "core" else f"[{part}]")
        listed |= names
    for part, requirements in parts.items():
        names = {canonicalize_name(name) for name in closure(requirements)} - listed
        lines += rows_of(names, f"what {'the core' if part == 'core' else f'[{part}]'} needs")
        listed |= names
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(notices(), encoding="utf-8")
