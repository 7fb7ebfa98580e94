"""Event handlers: the only code that changes the state. The table of all of them is in handlers.py."""
