"""The network of a cell that may reach some hosts, seen from the daemon.

Nouns: `Egress` (serves the sockets that a cell handed over, and owns its connections), `Names` (its resolver), `Dialer`
(connects to granted hosts), `Refusals` (what was refused, counted), `Attempts` (what became of the other connections).
Which hosts are granted is decided in `toolcelld.policy`, what an entry means in `toolcelld.config.hosts`; the cell's
sockets are made by `toolcelld.sandbox`.
"""
