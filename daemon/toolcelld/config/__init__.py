"""The configuration: read, validated and resolved into the settings of one tool.

Nouns: `Config` (everything that the files say), `Settings` and `Limits` (what applies to one tool), `Access` (what it may
do). Values only; `configuration` has the one in force and replaces it on reload.
"""
