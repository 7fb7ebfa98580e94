"""Estimates of starts: when a job will run, on which nodes and instead of whom, and how right earlier estimates were.

    history.py        how long jobs ran and when they were submitted, folded from the log
    lengths_now.py    how long runs last, as it is known at one moment
    chances.py        what a future draws: run lengths, and submits that may still come
    futures.py        a future, played by both cores until the job has its place
    layout.py         a future of a long line, laid out in time on the pool as one machine
    forecast.py       many futures of one question, within a bounded amount of work
    calibration.py    intervals that hold as often as they say, from earlier estimates and what came
    scores.py         coverage and pinball loss of estimates
    ledger.py         what would have been said of submits, and what came
    core.py           all of it, folded from the log
    answers.py        answers as they go over the bus
    frames.py         frames between the process for the past and its estimator
    worker.py         the estimator: a process that folds what it is sent, and answers
    estimator.py      the process from the outside: fed with the log, asked, stopped where it takes too long

All but the last two are pure: an estimate follows from the log up to its sequence.
"""
