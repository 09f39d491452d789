"""Build the sdist and the wheel, look into them, and try the wheel with its core dependencies alone, offline.

    python tools/package.py [--out dist]

The environment for that is made of links to the core's distributions among those installed here: nothing is downloaded,
and whatever only an extra brings is really absent. `pip check` says that nothing is missing in it.
"""

from __future__ import annotations

import argparse
import email
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
READMES = {path.name for path in ROOT.glob("README*.md")}  # in every language
TEXTS = READMES | {"CHANGELOG.md", "CITATION.cff", "LICENSE", "SECURITY.md", "THIRD_PARTY_LICENSES.md"}
SDIST = TEXTS | {"pyproject.toml", "PKG-INFO", ".gitignore", "src"}


def run(*words: str | Path, cwd: Path | None = None) -> str:
    """The output of a command that must succeed; what it says is shown where it does not."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    """Build an sdist or a wheel from a source folder, with the backend of pyproject.toml."""
    before = set(out.iterdir())
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out, cwd=source)
    (made,) = set(out.iterdir()) - before
    return made


def check_sdist(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist and compare it with what belongs there; the folder it holds."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    expect(SDIST, {path.name for path in unpacked.iterdir()}, sdist.name)
    return unpacked


def check_wheel(wheel: Path) -> list[Requirement]:
    """Compare a wheel with the package's tracked files; what it requires without any extra."""
    tracked = run("git", "ls-files", "src", cwd=ROOT).splitlines()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata_file,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(metadata_file))
        entry_points = archive.read(metadata_file.replace("METADATA", "entry_points.txt")).decode()
    about = metadata_file.split("/")[0] + "/"
    package = {name for name in names if not name.startswith(about)}
    expect({name.removeprefix("src/") for name in tracked}, package, wheel.name)
    assert "litebert/py.typed" in package
    assert {f"{about}licenses/LICENSE", f"{about}licenses/THIRD_PARTY_LICENSES.md"} <= set(names)
    assert "litebert = litebert.__main__:main" in entry_points
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    return [each for each in requirements if "extra" not in str(each.marker or "")]


def expect(wanted: set[str], found: set[str], where: str) -> None:
    """Stop where a set of files is not the one that it should be."""
    if wanted != found:
        sys.exit(f"{where}: missing {sorted(wanted - found)}, too much {sorted(found - wanted)}")


def closure(requirements: list[Requirement]) -> dict[str, Distribution]:
    """The installed distributions that some requirements need, and those that these need, and so on."""
    found: dict[str, Distribution] = {}
    asked: set[tuple[str, str]] = set()
    waiting = [(each, extra) for each in requirements for extra in ("", *each.extras)]
    while waiting:
        requirement, extra = waiting.pop()
        if (requirement.name, extra) in asked:
            continue
        asked.add((requirement.name, extra))
        found[requirement.name] = distribution(requirement.name)
        for text in found[requirement.name].requires or []:
            inner = Requirement(text)
            if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                waiting += [(inner, each) for each in ("", *inner.extras)]
    return found


def make_environment(folder: Path, wheel: Path, core: dict[str, Distribution]) -> Path:
    """A fresh environment with the wheel and links to its core dependencies; its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for one in core.values():
        for top in {file.parts[0] for file in one.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(one.locate_file(top))))
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    run(*pip, "check")
    return python


def check_types(python: Path, folder: Path) -> None:
    """A program that uses the wheel sees its types: a wrong one is found, a right one passes."""
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-torch.*,numpy.*,rich.*]\nfollow_imports = skip\n")
    (folder / "program.py").write_text(
        "import litebert\n"
        "right: litebert.ModelConfig = litebert.preset('albert-base')\n"
        "wrong: int = litebert.preset('albert-base')\n"
    )
    mypy = [sys.executable, "-m", "mypy", "--python-executable", str(python), "program.py"]
    found = subprocess.run(mypy, cwd=folder, check=False, capture_output=True, text=True).stdout
    expect({"3"}, {line.split(":")[1] for line in found.splitlines() if ": error:" in line}, f"types:\n{found}\nlines")


def without_network() -> list[str]:
    """The words before a command that take its network away, where this system lets us."""
    words = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") and subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0:
        return words
    print("no network namespaces here: proxies that point nowhere instead")
    nowhere = "http://127.0.0.1:9"
    return ["env", "HF_HUB_OFFLINE=1", *(f"{name}_proxy={nowhere}" for name in ("http", "https", "all"))]


def main() -> None:
    """All of it; the first thing that is wrong ends it with a message."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="keep the sdist and the wheel in this folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for part in ("built", "unpacked"):
            (work / part).mkdir()
        sdist = build("sdist", ROOT, work / "built")
        wheel = build("wheel", check_sdist(sdist, work / "unpacked"), work / "built")
        core = closure(check_wheel(wheel))
        python = make_environment(work / "environment", wheel, core)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(core)} distributions in the core", flush=True)
        run(python.with_name("litebert"), "--help", cwd=work)
        check_types(python, work)
        smoke = [*without_network(), str(python), "-I", str(ROOT / "tools" / "smoke.py")]
        if code := subprocess.run(smoke, cwd=work, check=False).returncode:
            sys.exit(code)
        if arguments.out:
            arguments.out.mkdir(parents=True, exist_ok=True)
            for made in (sdist, wheel):
                shutil.copy(made, arguments.out)


if __name__ == "__main__":
    main()
