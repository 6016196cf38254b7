"""What the command looks like: every help, table and result on terminals of 60, 80 and 200 columns.

`scenes` are the command lines with what they need, `recording` types them on a pseudo terminal, `screen` interprets what
is printed as a terminal does, and `drawing` makes pictures of it, light and dark: `python -m tests.cli.pictures DIRECTORY`.
`test_widths` holds the same scenes against the rules without a picture.
"""
