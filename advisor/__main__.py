"""``python -m advisor``, and the console script."""

from __future__ import annotations

import sys


def run() -> None:
    """Import the command line and run it; Ctrl-C while its modules load is a line and exit code 130, too."""
    try:
        from advisor.cli.main import run as run_verb
    except KeyboardInterrupt:
        print("advisor: interrupted", file=sys.stderr)
        sys.exit(130)
    except MemoryError:
        print("advisor: error: not enough memory to start; raise its limit (ulimit -v)", file=sys.stderr)
        sys.exit(2)
    run_verb()


if __name__ == "__main__":
    run()
