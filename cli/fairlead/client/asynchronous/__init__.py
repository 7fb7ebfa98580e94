"""Requests of the asynchronous client, of which docs/synchronous.py makes those of the synchronous one."""
