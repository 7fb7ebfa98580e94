"""Answers to questions: why, and what would become of a job. They change nothing."""
