"""Finding the user's daemon and starting one, shared or private."""
