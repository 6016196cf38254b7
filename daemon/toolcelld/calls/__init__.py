"""The life of a call, from admission to its outcome.

Nouns: `Call` (owns the state, the timers and the abort), `Run` (what its worker sends, and the evidence), `OutputCollector`
(what is no short result), `Outcome` (made only by `judge` in `outcome`), `Questions`, `Event`, `LimitMonitor`.
Each call is owned by its session until it has ended.
"""
