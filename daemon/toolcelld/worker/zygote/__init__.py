"""The process from which cells are forked.

`process` answers the daemon and forks. Before that, `warm_up` fills the caches that all workers use, `packing` puts the
code that cells run together, of which `trial` finds out, `immortal` keeps the memory shared with them, and `holes` keeps
theirs together.
"""
