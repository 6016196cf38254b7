"""What the daemon tells systemd, if it runs there: `ServiceManager` its state and signs of life, `JournalHandler` its log.
And what it is given: the socket of `activation`.

All speak systemd's own ways themselves, so its library is not needed.
"""
