"""Sums over the log's events, kept up to date in tables of the schema `fold` with each transaction. Start at updater.py."""
