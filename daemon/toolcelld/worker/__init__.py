"""What runs in the zygote and in the cells.

`zygote` forks keepers and nothing else. `keeper` holds one cell: it waits for the daemon's
word, builds the cell, forks the worker, carries signals in and reports deaths out, and ends the
whole cell at once. `steps` is the list of what happens to a process before the user's file is
run, in the order that is the security argument. `load` runs the file, `serve` answers calls,
`abortable` stops them, `ending` says how they ended, `wire` is their way to speak. `linux` is the
kernel by ctypes.

Nothing here imports grpc or the rest of the daemon: it is forked, and it is what a tool's process
pays for.
"""
