"""Confinement of the process that calls it: namespaces, mounts, rlimits, Landlock and seccomp, applied in order.

`setup` holds the ordered list of steps, and that order is the security argument.
Nouns: `SandboxPolicy` (what a cell may read, write and reach), `CellLimits`, `CellSetup`.
No state: each function changes the calling process and cannot be undone.
The daemon decides a policy in `toolcelld.policy`; the keeper and the worker (`toolcelld.worker`) apply it.
"""
