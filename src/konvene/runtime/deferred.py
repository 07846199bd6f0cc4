"""An answer that is not there yet.

Lighter than a future: it is resolved once, by the code that has the answer, and tells its one listener in
the same breath. `None` as a value means that there is nothing to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_OPEN: Any = object()


class Deferred(Generic[T]):
    """A value that one side sets and the other awaits or listens for."""

    __slots__ = ("_listener", "_value")

    def __init__(self) -> None:
        self._value: T = _OPEN
        self._listener: Callable[[T], None] | None = None

    def __repr__(self) -> str:
        return f"Later({'open' if self._value is _OPEN else self._value!r})"

    @property
    def done(self) -> bool:
        return self._value is not _OPEN

    @property
    def value(self) -> T:
        assert self._value is not _OPEN
        return self._value

    def resolve(self, value: T) -> None:
        """Set the value. Only the first one counts."""
        if self._value is _OPEN:
            self._value = value
            listener, self._listener = self._listener, None
            if listener is not None:
                listener(value)

    def listen(self, listener: Callable[[T], None]) -> None:
        """Call `listener` with the value, at once if it is there."""
        if self._value is not _OPEN:
            listener(self._value)
        else:
            self._listener = listener

    def __await__(self) -> Generator[Any, None, T]:
        if self._value is _OPEN:
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            self._listener = lambda value: None if future.done() else future.set_result(value)
            return (yield from future)
        return self._value


def then(answer: Any, change: Callable[[Any], Any]) -> Any:
    """What `change` makes of an answer: at once where it is there, else when it comes."""
    if not isinstance(answer, Deferred):
        return change(answer)
    if answer.done:
        return change(answer.value)
    changed: Deferred[Any] = Deferred()
    answer.listen(lambda value: changed.resolve(change(value)))
    return changed


HANG_UP = object()
"""A handler's answer that closes the connection, where the protocol leaves no other way to say no."""
