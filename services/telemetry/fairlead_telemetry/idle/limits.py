"""Every bound of the idle policies, by name."""

from fairlead_schemas.units.timestamps import DAY_NS, MINUTE_NS, SECOND_NS

#: A signal that has not arrived for this time is missing: the run counts as active.
UNSEEN_NS = 15 * SECOND_NS
#: A batch is taken only if its node's clock is at most so far before ours, or behind it.
FUTURE_NS = 5 * SECOND_NS
LATE_NS = MINUTE_NS
#: How often what was seen is looked at; the precision of everything that samples decide.
CHECK_NS = 5 * SECOND_NS
#: Of a policy.
AFTER_LEAST_NS = SECOND_NS
DURATION_MOST_NS = 366 * DAY_NS
THRESHOLD_MOST = 1 << 53
EXTENSIONS_MOST = 1000
SCOPES_MAX = 10_000
NAME_CHARS_MAX = 128
#: Events of one decision in addition to answers to commands; with evidence about 1 KiB each.
JUDGED_EVENTS_MAX = 150
#: Characters of a refusal: a line for each problem of a file of policies.
REFUSAL_CHARS_MAX = 4000
