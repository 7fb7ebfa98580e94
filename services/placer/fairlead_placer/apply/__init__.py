"""Event handlers: the only code that changes the state. Their table is in `handlers.py`; `draft.py` applies a decision's events speculatively."""
