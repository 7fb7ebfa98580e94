"""Documents of the gateway about notifications: rules of people, and the state of each rule's destination."""

from typing import Literal

import msgspec

from fairlead_schemas.policies.notifications import NotificationKind


class NotificationRule(msgspec.Struct, kw_only=True):
    """A rule with the state of its destination. The key of its signatures is shown once, when it is made."""

    id: str
    #: Principal; without sign-on the sender's name.
    owner: str
    name: str
    channel: Literal["webhook", "mail"]
    #: Scheme and host of a webhook's URL, whose rest may be a secret; address of mail, "" for the owner's own.
    to: str
    on: list[NotificationKind]
    #: "mine", or scopes such as "queue:research/vision".
    scopes: list[str]
    #: True: an array's elements count like jobs.
    elements: bool
    made_at: str
    #: ok; failing: it is tried again; paused: until a test succeeds.
    state: Literal["ok", "failing", "paused"]
    #: Why the last attempt failed; "" where none did.
    error: str
    failing_since: str | None
    #: Messages delivered, and when the last one was.
    sent: int
    sent_at: str | None


class NewNotificationRule(NotificationRule, kw_only=True):
    """A rule that was just made. `secret` is the key of its signatures, which is not shown again; "" for mail."""

    secret: str
    sequence: int


class DeliveryTest(msgspec.Struct, frozen=True):
    """Outcome of a test message: sent, or why it was not."""

    sent: bool
    error: str = ""
