"""A value that may come later, and what request handlers return.

Most requests are answered at once, some after the next sync of the log, and a few after seconds: a member
that waits for its group, a consumer that waits for records. A `Deferred` serves all of them without a task
per request: one side resolves it, the other registers a listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from enum import Enum
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")

_UNSET: Any = object()


class Deferred(Generic[T]):
    """A value that one side resolves and the other awaits or listens for, with one listener at most."""

    __slots__ = ("_listener", "_value")

    def __init__(self) -> None:
        self._value: T = _UNSET
        self._listener: Callable[[T], None] | None = None

    def __repr__(self) -> str:
        return f"Deferred({'unresolved' if self._value is _UNSET else self._value!r})"

    @property
    def done(self) -> bool:
        return self._value is not _UNSET

    @property
    def value(self) -> T:
        assert self._value is not _UNSET, "the value is not resolved yet"
        return self._value

    def resolve(self, value: T) -> None:
        """Set the value and call the listener. Later values are ignored."""
        if self._value is _UNSET:
            self._value = value
            listener, self._listener = self._listener, None
            if listener is not None:
                listener(value)

    def listen(self, listener: Callable[[T], None]) -> None:
        """Call `listener` with the value: now if it is resolved, else when it is."""
        if self._value is not _UNSET:
            listener(self._value)
        else:
            self._listener = listener

    def __await__(self) -> Generator[object, None, T]:
        if self._value is _UNSET:
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            self._listener = lambda value: None if future.done() else future.set_result(value)
            return (yield from future)
        return self._value


class HangUp(Enum):
    """The type of `HANG_UP`, its only member, which a handler returns to close the connection.

    It is an enum so that annotations can name this type."""

    HANG_UP = "hang up"


HANG_UP: Final = HangUp.HANG_UP
"""Returned by a handler to close the connection, where the protocol has no other way to report an error."""

Answer: TypeAlias = T | Deferred[T] | Coroutine[Any, Any, T]
"""What a handler returns: the response itself, a deferred one, or a coroutine that returns it.

The response is a message, its encoded body as bytes, `HANG_UP`, or None where there is no response."""


def then(answer: T | Deferred[T], change: Callable[[T], U]) -> U | Deferred[U]:
    """Apply `change` to an answer: at once if its value is resolved, else when it is.

    Return the changed value, or a `Deferred` of it."""
    if not isinstance(answer, Deferred):
        return change(answer)
    if answer.done:
        return change(answer.value)
    changed: Deferred[U] = Deferred()
    answer.listen(lambda value: changed.resolve(change(value)))
    return changed


async def value_of(answer: Answer[T]) -> T:
    """Return the response of an answer, after waiting for it if necessary."""
    if isinstance(answer, Deferred) or asyncio.iscoroutine(answer):
        value: T = await answer
        return value
    return answer
