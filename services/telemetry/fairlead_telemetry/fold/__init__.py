"""What the log's events add up to, kept up to date in tables of the schema `fold` with each transaction. Start at folding.py."""
