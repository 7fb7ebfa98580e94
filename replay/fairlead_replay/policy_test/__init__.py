"""Policy tests: a recorded load played under a policy, and expectations of it that hold or do not.

    metrics.py       measures of a play, by queue, user, pool or size: units, and which way is worse
    policy_file.py   the file: log, policy, expectations, thresholds with units
    plays.py         the plays that a test needs, what is measured of each, and a whole queue file as the policy
    verdicts.py      met, broken, or not to be judged; by how much, and who lost most
    goldens.py       digest and figures of an exact play, kept beside the file
    reports.py       document, text, JUnit XML

Start at `plays.run`. The engine is `fairlead_replay.whatif`; nothing of a policy is written twice.
"""
