"""Answers to questions: why a job waits, and what would become of one. They change nothing."""
