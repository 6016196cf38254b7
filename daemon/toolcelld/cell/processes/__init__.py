"""The processes of a cell, as the kernel shows them.

Nouns: `CellProcesses` (our own, the worker, and what else is there), `ProcessList` (the kernel's lists, held open),
`Forks` (the process that a template forks for each call), `CellUsage` (what they use together).
Nothing here asks the cell: what the keeper counts is in `cell.cell`.
"""
