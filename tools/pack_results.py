"""Pack the folders of many small runs, so that the repository keeps one file for each: FOLDER -> FOLDER.tar.xz.

python tools/pack_results.py docs/results/reproduction/*/cells

The same files give the same bytes. To open one: `tar xf FOLDER.tar.xz`; `litebert report` and `litebert reproduce`
unpack a reproduction's cells themselves.
"""

from __future__ import annotations

import argparse
import lzma
import shutil
import tarfile
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    for folder in parser.parse_args().folders:
        print(f"{pack(folder)}: {sum(1 for _ in folder.rglob('*'))} files and folders")
        shutil.rmtree(folder)


def pack(folder: Path) -> Path:
    """FOLDER.tar.xz beside the folder, without dates and owners."""
    archive = folder.with_name(f"{folder.name}.tar.xz")
    with tarfile.open(archive, "w:xz", preset=9 | lzma.PRESET_EXTREME) as packed:
        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            entry = tarfile.TarInfo(file.relative_to(folder.parent).as_posix())
            entry.size, entry.mode = file.stat().st_size, 0o644
            with file.open("rb") as content:
                packed.addfile(entry, content)
    return archive


if __name__ == "__main__":
    main()
