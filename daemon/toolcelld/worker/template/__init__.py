"""A worker that gives each call a process of its own, forked ahead of it from the process that has loaded the file.

`process` forks. `traces` finds what an import has started and a fork would share, and `leftovers` what a call has left in
the cell's own file systems.
"""
