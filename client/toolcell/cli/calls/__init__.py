"""What calls are and what they left: `call` makes one, `listing` and `output` show them.

`quick` makes most calls, without the libraries that take most of the time; `display` shows one for both.
`arguments` reads the words of a command line, `kept_session` the sessions that are kept between commands.
"""

from __future__ import annotations

SHORT = frozenset({"call", "calls", "ps", "status"})
"""The commands that `quick` can serve."""
