"""One host: `context` is its name, its directory and what it can show and be asked; `limits` how much of a result it shows.

`link` connects it with the daemon, and `session` is its one session there, with its calls; `offers` is what it is offered beside
tools, `notices` how it is notified, and `request_state` what it keeps for us between the parts of a request. `context`, `limits` and `link` do not import the SDK, as they are needed before it.
"""
