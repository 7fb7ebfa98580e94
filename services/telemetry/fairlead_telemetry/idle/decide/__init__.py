"""Decisions of the idle core: answers to commands (commands.py) and the evaluation of policies. Start at decision.py."""
