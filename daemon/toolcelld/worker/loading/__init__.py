"""Runs a tool file, finds its tools, and reports what of the project it imported."""
