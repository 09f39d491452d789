"""The command `litebert`, `python -m litebert`, and so `torchrun --nproc-per-node 8 -m litebert pretrain ...`."""

import os
import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends with one line too."""
    try:
        from litebert.cli import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except SystemExit as end:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            # Threads of a process group may abort the interpreter while it ends ("terminate called without an active
            # exception", seen once), and torchrun would take the finished run for a failed one.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        raise


if __name__ == "__main__":
    main()
