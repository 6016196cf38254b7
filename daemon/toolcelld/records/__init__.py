"""What has happened, kept over restarts: each call, session, death of a worker, start and end of the daemon, and decision.

`ledger` is what the rest of the daemon uses: it takes what happened, off the road of a call, and answers questions about
it. `writer` is the thread that commits it in batches, `journal` holds what was accepted since the last one, `tables` the
schema and what leaves it when it is too old or too much, `rows` a call as a row and back, `query` a filter as SQL, and
`runs` the starts and ends of daemons, also those that were killed, with the calls that they took along.
"""
