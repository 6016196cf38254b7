"""The process from which cells are forked.

`process` answers the daemon and forks. Before that, `warm_up` fills the caches that all workers use, and `immortal`
keeps the memory shared with them.
"""
