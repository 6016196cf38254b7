"""What a tool returns or raises, normalised to content blocks, structured details and an error text."""
