"""The commands for the daemon itself: its state, its configuration, what it is told to do and what it lets tools reach."""
