"""A small log whose bill a person can check, and its prices."""

from fairlead_schemas.wire import events as ev
from tests.telemetry.story import Story, ended, joined, offered, placed, submitted

PRICES = """model,per_gpu_hour,currency,valid_from
NVIDIA A100,1.50,EUR,2025-01-01
NVIDIA A100,2.50,EUR,2026-01-11
*,9,USD,2025-01-01
"""
HOUR, DAY = 3600, 86400


def winter() -> Story:
    """ada: 2 GPUs for an hour, then 1 GPU over the 11th's midnight for 4 hours; bob: over the month's end, and one that runs on."""
    s = Story()
    s.at(0, joined("n1"), joined("n2"))
    s.at(10, submitted("1", gpus=2), offered("1"))
    s.at(60, placed("1", n1=2))
    s.at(60 + HOUR, ended("1", released=("n1",)))
    s.at(60 + HOUR, ev.JobSucceeded(cause="1.0", job="1", attempt=1))
    s.at(10 * DAY - 3 * HOUR - 5, submitted("2", queue="vision", project="cats"), offered("2"))
    s.at(10 * DAY - 3 * HOUR, placed("2", n1=1))
    s.at(10 * DAY + HOUR, ended("2", released=("n1",)))
    s.at(10 * DAY + HOUR, ev.JobSucceeded(cause="1.0", job="2", attempt=1))
    s.at(31 * DAY - 2 * HOUR - 5, submitted("3", user="bob"), offered("3"))
    s.at(31 * DAY - 2 * HOUR, placed("3", n1=1))
    s.at(31 * DAY + HOUR, ended("3"))
    s.at(31 * DAY + HOUR, ev.JobSucceeded(cause="1.0", job="3", attempt=1))
    s.at(31 * DAY + 2 * HOUR, ev.AllocationReleased(cause="report:n1:4", job="3", attempt=1, node="n1"))
    s.at(31 * DAY + 2 * HOUR, submitted("4", user="bob"), offered("4"))
    s.at(31 * DAY + 2 * HOUR, placed("4", n2=1))
    s.at(31 * DAY + 5 * HOUR, joined("n3"))
    return s
