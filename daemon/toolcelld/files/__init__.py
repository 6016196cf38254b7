"""Files and directories that others can change while the daemon reads them.

`paths` opens a path without following links, and compares what is there with what was there before (`Place`).
`regular` reads a file of unknown type up to a bound, without blocking.
`toml` parses a document that others wrote, within bounds.
No state. The keeper and the worker use `paths` too, so nothing here imports more than `linux` and `toolcell._paths`.
"""
