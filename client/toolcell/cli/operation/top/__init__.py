"""`toolcell top`: what goes on in the daemon, as it goes on, and the keys that steer it."""
