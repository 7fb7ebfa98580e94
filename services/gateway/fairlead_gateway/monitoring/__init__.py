"""Conditions behind `/readyz`, the probes that collect them, and Prometheus metrics."""
