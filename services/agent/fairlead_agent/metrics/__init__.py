"""What a node's agent tells Prometheus at /metrics: `dcgm.py` GPUs in dcgm-exporter's words, `node.py` the rest, `serving.py` HTTP."""
