"""What a call prints and returns, cut to what a model reads and kept whole on disk.

Nouns: `Truncator` (keeps head, tail or both ends), `SpooledOutput` (memory first, then a file), `SpillStore` (owns
the files, their index, quota and retention), `StreamRedactor` (replaces secrets in a stream).
"""
