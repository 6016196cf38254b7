"""`toolcelld` and `python -m toolcelld`: the daemon on Linux, elsewhere a sentence.

What the daemon imports needs Linux, so the platform is looked at before.
"""

from __future__ import annotations

import sys
from typing import Final

from toolcell._platform import unsupported

EXIT_UNAVAILABLE: Final = 69  # EX_UNAVAILABLE of <sysexits.h>


def main() -> None:
    """Serve until told to stop."""
    if (reason := unsupported(sys.platform)) is not None:
        print(f"toolcelld: {reason}", file=sys.stderr)
        sys.exit(EXIT_UNAVAILABLE)
    from toolcelld.program import main as serve

    serve()


if __name__ == "__main__":
    main()
