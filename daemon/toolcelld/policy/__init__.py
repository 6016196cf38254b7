"""What a tool may read, write, reach and use: profiles, trust, grants and secrets, decided without I/O.

Nouns: `Ruleset` (configuration, trust and host as one value), `Permit` (the decision for one tool), `CellSpec` (what one
cell is given; the key by which cells are shared), `HostCapabilities`, `SecretRefs`. `EgressProxy` enforces the part on network hosts and owns its connections.
The decision is applied by `toolcelld.sandbox` in the cell.
"""
