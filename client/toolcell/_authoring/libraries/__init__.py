"""Tools that were written for other libraries, found by their shape and run unchanged."""
