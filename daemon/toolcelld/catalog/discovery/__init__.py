"""Where tool files come from, and which there are.

`sources` has their order of precedence, and `packaged` what packages bring; the directories of other systems are in
`toolcelld.flavours`. `scan` reads them: `candidates` decides which entries are tool files, by the kinds of
`toolcell._file_kinds`, and `digest` is the key of what was found.
"""
