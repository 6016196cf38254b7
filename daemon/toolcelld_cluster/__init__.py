"""Placement: which of several machines runs a session. It is a service of its own, and never in the way of a call.

An engine knows the nodes; `inventory` chooses one and `book` keeps who has which lease, both without any I/O; `service`
answers clients with an address and a ticket, and from then on they speak to the node alone.
"""
