"""The life of a call, from admission to its outcome.

Nouns: `Call` (owns the state, the timers and the abort), `OutputCollector` (receives the worker's messages and output),
`CallRecord` (the evidence), `Outcome` (made only by `judge` in `outcome`), `Questions`, `Event`, `LimitMonitor`.
Each call is owned by its session until it has ended.
"""
