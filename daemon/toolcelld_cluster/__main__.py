"""`python -m toolcelld_cluster FILE`: Placement, for the nodes of a file; `toolcell cluster serve` starts it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from typing import Final

from toolcell._extras import install_command
from toolcell._printable import printable
from toolcelld_cluster.configuration import FileError, load
from toolcelld_cluster.server import run

EXIT_CONFIG: Final = 78  # EX_CONFIG of <sysexits.h>


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="toolcelld_cluster", description="Placement: where sessions run.")
    parser.add_argument("file", help="the nodes and the tenants")
    parser.add_argument(
        "--invite",
        action="append",
        default=[],
        metavar="TENANT",
        help="print a code for a client; may come again",
    )
    arguments = parser.parse_args()
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(run(load(arguments.file), arguments.invite))
    except ImportError as error:
        if error.name is None or not error.name.startswith("cryptography"):
            raise
        needs = f"certificates need a package that is not installed; {install_command('remote')}"
        print(f"toolcelld_cluster: {needs}", file=sys.stderr)
        sys.exit(EXIT_CONFIG)
    except FileError as error:
        print(f"toolcelld_cluster: {printable(str(error))}", file=sys.stderr)
        sys.exit(EXIT_CONFIG)


if __name__ == "__main__":
    main()
