"""Metrics of a node's agent for Prometheus at /metrics: `exposition.py` has the series, `server.py` HTTP."""
