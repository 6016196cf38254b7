"""What a cell is given and may reach: trust, profiles and secrets, decided without I/O.

Nouns: `Ruleset` (configuration, trust and host as one value), `Permit` (the decision for one tool), `CellSpec` (what one
cell is given; the key by which cells are shared), `HostCapabilities`, `SecretRefs`.
The part on network hosts is enforced by `toolcelld.network`.
The decision is applied by `toolcelld.sandbox` in the cell.
"""
