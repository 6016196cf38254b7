"""The stream to the daemon: connecting, sending, receiving, acknowledging and resuming after a break.

`Connection` owns the channel, the send queue and the receive buffer of one session. Counterpart: `toolcelld.rpc`.
"""
