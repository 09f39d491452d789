"""Build the page's engine: src/litebert/page/engine/engine.c -> engine.wasm and engine-relaxed.wasm.

    apt-get install clang-19 lld-19
    python tools/engine.py [--out FOLDER]

The binaries are part of the repository, so that only who changes engine.c needs a compiler. The same release of it
makes the same bytes; tests/export/test_engine.py compares them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src/litebert/page/engine/engine.c"
COMPILER, LINKER = "clang-19", "wasm-ld-19"
RELEASE = "19.1.7"  # of the compiler that made the binaries
BUILDS = {"engine.wasm": (), "engine-relaxed.wasm": ("-mrelaxed-simd", "-DRELAXED")}
FLAGS = (
    *("--target=wasm32", "-std=c11", "-O3", "-ffreestanding", "-nostdlib", "-Wall", "-Wextra", "-Werror"),
    *("-msimd128", "-mbulk-memory", "-matomics", "-mmutable-globals"),
    *("-Wl,--no-entry", "-Wl,--shared-memory", "-Wl,--import-memory", "-Wl,--max-memory=4294967296"),
    *("-Wl,-z,stack-size=65536", "-Wl,--export=__stack_pointer", "-Wl,--strip-all"),
)


def build(folder: Path) -> None:
    """Both builds into a folder."""
    for name, more in BUILDS.items():
        target = folder / name
        subprocess.run([COMPILER, *FLAGS, *more, "-o", str(target), SOURCE.name], cwd=SOURCE.parent, check=True)
        target.chmod(0o644)
        print(f"{target}  {target.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=SOURCE.parent)
    options = parser.parse_args()
    for tool in (COMPILER, LINKER):
        if shutil.which(tool) is None:
            sys.exit(f"{tool}: not found; apt-get install clang-19 lld-19")
    build(options.out.resolve())


if __name__ == "__main__":
    main()
