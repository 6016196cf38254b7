"""Interpreters and environments of packages for tools: found, judged, and described, but never run.

`interpreter` finds out by reading what an interpreter is and whether its packages fit Toolcell's own. Everything that
an environment contains is code of its project, so it runs in cells only: `toolcelld.worker.packages` adds the packages
there, or executes the interpreter. `packages` finds what scripts import; it is installed in a cell, too.
"""
