"""Model of a queue's jobs as a placer knows them from the log, and the promises that hold for any of its machines."""

from hypothesis.stateful import RuleBasedStateMachine, invariant

from fairlead_schemas.wire.events import Event
from fairlead_schemas.wire.lifecycle import END_STATES
from tests.kit.queue_world import QueueWorld


class LiveJobs(RuleBasedStateMachine):
    """State machine around a queue world that follows its log."""

    world: QueueWorld

    def __init__(self) -> None:
        super().__init__()
        #: {job: attempt} as the placer has them.
        self.open: dict[str, int] = {}
        self.runs: dict[str, int] = {}
        self.started: set[str] = set()
        self.accepted: set[str] = set()
        self.ended: set[str] = set()
        self.number = 0
        self.seen = 0

    def learn(self) -> None:
        """Fold what the queue has committed into the model."""
        for commit in self.world.log[self.seen :]:
            for event in commit.events:
                self.learn_one(event)
        self.seen = len(self.world.log)

    def learn_one(self, event: Event) -> None:
        """Fold one event of the queue into the model."""
        raise NotImplementedError

    @invariant()
    def every_accepted_job_is_live_or_has_ended_once(self) -> None:
        if self.seen == len(self.world.log):
            live = set(self.world.state.jobs)
            assert live | self.ended == self.accepted
            assert not live & self.ended
            assert set(self.world.state.finished.values()) <= END_STATES

    @invariant()
    def the_placer_and_the_queue_agree_on_open_offers(self) -> None:
        self.learn()
        assert set(self.open) == set(self.world.offered())
