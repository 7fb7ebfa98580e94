"""Callers of the gateway, what they may see and do, and the record of it."""
