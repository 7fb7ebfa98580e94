"""Reasons for the state of a job: one dominant reason, its evidence in numbers, and the next step. Pure.

Reads the views only. Refusals by the queue and the placer are given as recorded (JobDeferred, JobUnplaceable),
never computed a second time. Start at `dominant_reason.reason_of`.
"""
