"""Client sessions: admission of calls, events for the client, and idempotency.

Nouns: `Session` (owns its running calls and its `Outbox`), `Sessions` (the registry of open sessions), `Admission`,
`IdempotencyCache`. A session outlives a broken stream until its linger ends.
Counterpart: `toolcell.client.session`.
"""
