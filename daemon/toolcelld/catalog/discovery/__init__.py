"""Where tool files come from, and which there are.

`sources` has their order of precedence, `flavours` the directories of other systems, and `packaged` what packages bring.
`scan` reads them; `digest` is the key of what it found.
"""
