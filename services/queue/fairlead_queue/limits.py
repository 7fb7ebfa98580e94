"""Every bound of the queue service, by name."""

from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.commit import COMMIT_BYTES_MAX

#: Open offers of a pool that are not known to be refused: while the pool has room for more, and beyond that.
WINDOW_OFFERS_MAX = 1024
AHEAD_OFFERS_MAX = 256
#: Open offers that one class may have regardless of the others: enough to resume at once when capacity comes
#: back, and the limit of a parked class.
PARKED_OFFERS_MAX = 16

#: An offer that is open for so long is stuck: the whole order is looked at again, so often at most.
REVIEW_NS = SECOND_NS // 4
REVIEW_LATEST_NS = SECOND_NS
#: An offer open for this time counts as refused, even if the placer (which rarely repeats itself) has not
#: reported so.
STUCK_NS = 5 * SECOND_NS
#: At first, the reason given for a waiting lane is not repeated within this time.
NEWS_NS = 10 * SECOND_NS
#: Lanes of which one decision says why they wait.
NEWS_MAX = 64
#: Waiting jobs for which one review looks for runs that may yield, and number of runs that it names for each.
#: A job that needs more of them gets enough to hold it twice over, up to the placer's limit.
STARVING_MAX = 8
VICTIMS_MAX = 64
VICTIMS_LARGE_MAX = 256
VICTIM_BYTES = 80
#: Others are asked to yield to a job only when it has waited so long: most of what it waits for comes free by itself. Where
#: nothing has come free by itself for so long, it does not wait for that.
ASK_AFTER_NS = SECOND_NS
#: A job whose request to make room was declined asks again after so long, at first.
ASK_AGAIN_NS = 5 * SECOND_NS
#: What is done again and again for the same job or lane is done half as often each time, down to a 64th.
DOUBLINGS_MAX = 6
#: A job withdrawn for quota, that the placer has not refused in so many words, is offered again after so long at most.
BACK_NS = 30 * SECOND_NS

#: Finished jobs kept in folded state, and how many leave it at once.
FINISHED_JOBS_MAX = 10_000
RETIRE_CHUNK = 1_000
#: Jobs whose priority one event raises.
AGED_CHUNK = 200
#: Keyed submits that are remembered.
KEYS_MAX = 50_000

#: Delay before each attempt after a loss that was not the job's doing; its length is the budget. The
#: first is immediate: the lost node has already waited out its lease, the restarted agent is back.
LOSS_DELAYS_NS = (0, 120 * SECOND_NS, 600 * SECOND_NS)
#: Attempts that could not be started and are tried again at once, before the user's own retries count.
FREE_STARTS_MAX = 1
#: A job that has failed in the same way on so many nodes is to blame itself: it is not tried again, whatever is left.
BLAMED_NODES = 3

#: What a commit may hold, and what its events are counted as before they are encoded.
COMMIT_BYTES_BUDGET = COMMIT_BYTES_MAX - 8 * 1024
#: Of these, kept for the answers to one decision's commands (the source takes at most 400, of 96 KiB).
COMMANDS_BYTES = 160 * 1024
ANSWER_BYTES = 400
SUBMIT_BYTES = 450
