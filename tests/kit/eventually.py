"""The one loop in which tests wait for what other tasks, processes or servers do. A wait that runs out says what it waited for.

The condition's value is returned, so that a test need not compute it again. Without a description, the source of the condition
describes it.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

WITHIN_S = 60.0
#: Between two looks: at processes, which take a while, and at tasks of the same loop.
LOOK_S = 0.05
LOOK_ASYNC_S = 0.005


def eventually[T](
    condition: Callable[[], T],
    what: str = "",
    *,
    within_s: float = WITHIN_S,
    not_yet: tuple[type[BaseException], ...] = (),
    look_s: float = LOOK_S,
    logs: Callable[[], str] = str,
) -> T:
    """Look until the condition is true, and return its value; one of `not_yet` raised by it means that it is not true yet.

    Raises AssertionError with what did not come true, and with `logs`.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except not_yet:
            pass
        time.sleep(look_s)
    raise AssertionError(_failure(condition, what, within_s, logs))


async def eventually_async[T](
    condition: Callable[[], T | Awaitable[T]],
    what: str = "",
    *,
    within_s: float = WITHIN_S,
    not_yet: tuple[type[BaseException], ...] = (),
    look_s: float = LOOK_ASYNC_S,
    logs: Callable[[], str] = str,
) -> T:
    """Look as `eventually` does while other tasks run. A condition may be a coroutine function."""
    limit = asyncio.timeout(within_s)
    try:
        async with limit:
            while True:
                try:
                    found: Any = condition()
                    if value := await found if inspect.isawaitable(found) else found:
                        return value
                except not_yet:
                    if limit.expired():
                        raise
                await asyncio.sleep(look_s)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(_failure(condition, what, within_s, logs)) from None


def _failure(condition: Callable[[], object], what: str, within_s: float, logs: Callable[[], str]) -> str:
    return f"within {within_s:g} s not true: {what or _source(condition)}\n{logs()}"


def _source(condition: Callable[[], object]) -> str:
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
