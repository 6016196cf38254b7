"""Tools that a JSON file declares: its format, and the three strategies by which they run. Imported for such files only."""
