"""Shares, limits and order over a tree of queues; knows no jobs."""
