"""Why a job is where it is: one dominant reason, its evidence in numbers, and the next step. Pure.

Reads the views only. What the queue and the placer refused is told in their own words (JobDeferred, JobUnplaceable),
never worked out a second time. Start at `reason.reason_of`.
"""
