"""Event handlers of the idle core: the only code that changes its state."""
