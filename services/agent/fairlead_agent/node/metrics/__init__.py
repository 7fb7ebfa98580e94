"""Metrics of a node's agent for Prometheus at /metrics: `families.py` has GPUs under dcgm-exporter's names, `families.py` the
rest, `server.py` HTTP."""
