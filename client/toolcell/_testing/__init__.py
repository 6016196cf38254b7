"""`toolcell test` inside of a cell: the tests of a tool, run as a call of it."""
