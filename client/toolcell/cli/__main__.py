"""`python -m toolcell.cli` is the command `toolcell`."""

from . import main

main()
