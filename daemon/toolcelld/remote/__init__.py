"""Clients on other machines: the service for agents over TCP, and how a machine becomes a client.

Nouns: `listening` (the server, with mutual TLS), `Ticket` (what a client shows with each request), `material` (certificates
and keys of the node), `Invitations` (codes that are exchanged for a certificate and a ticket).
The services are those of `rpc`; what a caller of another machine is held to is in `sessions.caller`.
"""
