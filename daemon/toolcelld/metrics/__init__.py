"""Metrics for monitoring systems, in the formats of Prometheus and OpenMetrics, and the health of the daemon, over HTTP.

Nouns: `Figures` (what is counted, and what is read when it is asked for), `serving` (the HTTP server). Nothing of it runs,
and its library is not loaded, without `[metrics] listen`.
"""
