"""Decisions of the access core: answers to commands (commands.py), and what time ends. Start at decision.py."""
