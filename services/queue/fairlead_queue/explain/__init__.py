"""Answers to questions: why a job waits, and the outcome of one that is not submitted yet. They change nothing."""
