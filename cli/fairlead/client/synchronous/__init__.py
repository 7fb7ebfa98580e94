"""Requests of the synchronous client, made by docs/synchronous.py of those of the asynchronous one. Edit those."""
