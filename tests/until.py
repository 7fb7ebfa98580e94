"""Wait for what processes of one's own bring about: the one loop of tests that look at them from outside."""

import time
from collections.abc import Callable


def until(
    condition: Callable[[], object],
    what: str,
    *,
    within_s: float,
    not_yet: tuple[type[BaseException], ...] = (),
    look_s: float = 0.1,
    logs: Callable[[], str] = str,
) -> None:
    """Look until the condition holds; one of `not_yet` raised by it means that it does not hold yet. Fails with what did not come
    true, and with `logs`."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except not_yet:
            pass
        time.sleep(look_s)
    raise AssertionError(f"within {within_s:g} s not true: {what}\n{logs()}")
