"""The inspector: a process of its own that parses what a project ships, because the daemon parses none of it.

    daemon ── a format and bytes, over a socket ──▶ inspector ── JSON, checked against a type ──▶ daemon

It has nothing but that socket: no file, no network, no program, no further process; and a second of processor time for
each answer. A parser that hangs, dies or is taken over costs one answer, which may then be wrong, and nothing else.

    answers         what the daemon asks: one function for each format, with the type of its answer
    process         the daemon's end of it: started when it is needed, replaced when it dies
    wire            what goes over the socket
    __main__        the inspector itself: confines itself, then answers
    formats         its parsers, by name
    git_config      of them, the one for git's configuration
    requirements    of them, the one for packages and script blocks
"""
