"""What a tool file says of itself.

`descriptions` has each file described once in a worker and caches the `description`; `schemas` checks what came back.
"""
