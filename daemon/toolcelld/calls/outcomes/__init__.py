"""How a call ended: `record` keeps what was seen of its run, `outcome` judges it once, `history` keeps the summary."""
