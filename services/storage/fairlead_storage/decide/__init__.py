"""Decisions of the storage core: answers to commands (commands.py). Start at decision.py."""
