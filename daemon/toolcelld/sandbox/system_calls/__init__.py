"""The system calls that a cell may make: what is denied and why, and the filter that denies it."""
