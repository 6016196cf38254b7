"""Which worker serves which call.

Nouns: `Pool` (owns all workers and the queue of calls that wait for one), `Worker` (a cell with a loaded tool file),
`PreforkedCells` (cells forked ahead of need), `Describer` (runs files to see their tools, for no call), `Quarantine` (files
whose workers keep crashing), `WorkerHistory` (what operators hear of all of them).
The pool decides synchronously; tasks carry out what it decided. Counterpart of `Worker`: `worker.main`.
"""
