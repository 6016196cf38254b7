"""What the daemon tells systemd, if it runs there: `ServiceManager` its state and signs of life, `JournalHandler` its log.

Both speak systemd's datagrams themselves, so its library is not needed.
"""
