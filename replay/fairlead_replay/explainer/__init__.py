"""Explainer: answers questions about jobs from a fold of its own, such as why a job waits, now or at any sequence, and the
outcome of a job if it were submitted.

`answers.py` computes the answers (pure), `kept_folds.py` of the folder above brings a core to the sequence that a question
needs, `service.py` receives the questions. The explainer writes nothing, and costs nothing while there are no questions.
"""
