"""Tools that ship with Toolcell: a directory for each pack, with tool files as a user would write them.

They are off until `[daemon] packs` names the pack. Nothing imports them but the workers that run them.
"""
