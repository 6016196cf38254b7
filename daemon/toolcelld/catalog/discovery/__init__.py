"""Where tool files come from: `sources` in their order, `flavours` of other systems, `packaged` ones, found by `scan`."""
