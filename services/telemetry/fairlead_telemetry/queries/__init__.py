"""Queries of other services, one module for each verb. Start at `answers.py`."""
