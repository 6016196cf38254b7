"""The network of a cell that may reach some hosts, seen from the daemon.

Nouns: `EgressProxy` (accepts the cell's connections, and owns them).
Which hosts are granted is decided in `toolcelld.policy`; the cell's listeners are made by `toolcelld.sandbox`.
"""
