"""How a call ended: `outcome` judges it once, `history` keeps the summary."""
