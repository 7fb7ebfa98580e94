"""Rendering of answers: tables, columns, pictures and explanations. Only `terminal.py` writes."""
