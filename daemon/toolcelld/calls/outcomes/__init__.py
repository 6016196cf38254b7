"""How a call ended: `outcome` judges it once, `network` says why a host was not reached, `history` keeps the summary,
`shown_values` masks what is shown of it.
"""
