"""How a call ended: `outcome` judges it once, `history` keeps the summary, `shown_values` masks what is shown of it."""
