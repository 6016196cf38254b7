"""What runs in the zygote and in the cells.

`zygote` forks keepers. `keeper` is the parent of one cell: it builds the cell when the daemon says so, forks the
worker, forwards signals, reports exits, and kills the whole cell. `toolcelld.sandbox.setup` lists the steps that
confine a process before the user's file runs. In the worker, `loading` runs the file, `main` answers calls, `abort`
interrupts them, `calling` has what a call needs, and `channel` is the connection to the daemon.

Nothing here imports grpc or the rest of the daemon: these modules are in every forked process, and add to its memory
and start time.
"""
