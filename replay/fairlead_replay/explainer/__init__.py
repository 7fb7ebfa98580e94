"""Answers questions about jobs from a fold of its own: why one waits, now or at any sequence, and what would become of one.

`questions.py` says what is answered (pure), `folds.py` brings the queue's core to where a question needs it,
`service.py` takes the questions. It writes nothing, and costs nothing while nobody asks.
"""
