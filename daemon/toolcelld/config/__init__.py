"""The configuration: read, validated and resolved into the settings of one tool.

Nouns: `Config` (everything that the files say), `Settings` and `Limits` (what applies to one tool), `Access` (what it may
do). Values only; the daemon owns the current `Config` and replaces it on reload.
"""
