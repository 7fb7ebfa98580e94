"""Replacement of a tail's consumer: after a silence, and not because its own process was busy."""

from fairlead_bus.nats.tail import GRACE_S, SILENCE_S, ConsumerWatch

NOT_LOST = (False, GRACE_S)


def test_an_active_consumer_is_not_lost() -> None:
    """The next check is at the earliest moment at which it could have been silent for too long."""
    silence = ConsumerWatch()
    silence.received_at = 10.0
    assert silence.look(10.5, expecting=True) == (False, SILENCE_S - 0.5)


def test_a_silent_consumer_is_lost_at_the_second_look() -> None:
    """The first look may come before heartbeats that are in the socket already are read."""
    silence = ConsumerWatch()
    silence.received_at = 10.0
    assert silence.look(10.0 + SILENCE_S, expecting=True) == NOT_LOST
    lost, _ = silence.look(10.0 + SILENCE_S + GRACE_S, expecting=True)
    assert lost


def test_a_busy_process_keeps_its_consumer() -> None:
    """Its loop stood still for longer than the silence; then it reads the heartbeats that came meanwhile."""
    silence = ConsumerWatch()
    silence.received_at = 10.0
    assert silence.look(20.0, expecting=True) == NOT_LOST
    silence.received_at = 20.05
    assert silence.look(20.1, expecting=True) == (False, SILENCE_S - (20.1 - 20.05))


def test_without_an_open_request_silence_means_nothing() -> None:
    """A reader that has enough to do asks for nothing, and the server sends no heartbeats then."""
    silence = ConsumerWatch()
    silence.received_at = 10.0
    for now in (20.0, 20.1, 20.2):
        assert silence.look(now, expecting=False) == NOT_LOST
