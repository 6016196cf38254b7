"""What calls are and what they left: `call` makes one, `listing` and `output` show them.

`arguments` reads the words of a command line, `kept_session` the sessions that stay between commands.
"""
