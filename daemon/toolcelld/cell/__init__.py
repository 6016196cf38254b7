"""The process tree of one worker, seen from the daemon.

Nouns: `Cell` (the tree: its channel, output, limits and end), `Zygote` (forks cells), `Handover` (of its sockets),
`CellExit` (how it ended, with the proof that it is empty, and the `crash_stack`), `Cgroup`; its processes are in `processes`.
`Cell` owns the descriptors and the life line of one tree. Counterparts: `worker.zygote` and `worker.keeper`.
"""
