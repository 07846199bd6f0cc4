"""Syncs files in the kernel, without a waiting thread: Linux's native asynchronous I/O.

A thread that waits for the disk has a cost besides the wait: it is woken, acquires the interpreter lock, and
wakes the loop. Here a sync is one call that returns at once, and its completion is an event of the loop. That
takes a quarter of the CPU time, and all logs can be synced at the same time. `DiskThreads` uses its threads
where the system has no such I/O or denies it (`make` returns None), or cannot take more (`submit` returns
False).

Only `fdatasync` is submitted, for descriptors that stay open until their completion.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable

__all__ = ["KernelSync"]

OnSynced = Callable[[OSError | None], None]

MAX_PENDING = 256

IOCB_CMD_FDSYNC = 3
IOCB_FLAG_RESFD = 1
_SYSTEM_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
"""Numbers of io_setup, io_destroy, io_submit and io_getevents by machine."""
_EVENT = struct.Struct("@QQqq")
"""The kernel's `io_event`."""


class _Request(ctypes.Structure):
    """A request to the kernel: its structure `iocb` on little-endian machines."""

    _fields_ = (
        ("number", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32),
        ("operation", ctypes.c_uint16), ("priority", ctypes.c_int16), ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64), ("size", ctypes.c_uint64), ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("event_descriptor", ctypes.c_uint32),
    )  # fmt: skip


class KernelSync:
    """Submits syncs to the kernel, and calls back on the event loop when they complete."""

    def __init__(self, loop: asyncio.AbstractEventLoop, calls: tuple[int, int, int, int]) -> None:
        """`calls` are numbers of system calls (`_SYSTEM_CALLS`). Raises OSError if the kernel denies one."""
        self._setup, self._destroy, self._submit, self._get_events = calls
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._call(self._setup, MAX_PENDING, ctypes.byref(self._context))
        self._events = ctypes.create_string_buffer(_EVENT.size * MAX_PENDING)
        self._event_descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._request = _Request(
            operation=IOCB_CMD_FDSYNC, flags=IOCB_FLAG_RESFD, event_descriptor=self._event_descriptor
        )
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._pending: dict[int, OnSynced] = {}
        self._last = 0
        self._loop = loop
        loop.add_reader(self._event_descriptor, self._on_event)

    def __repr__(self) -> str:
        return f"<{len(self._pending)} syncs pending>"

    @classmethod
    def make(cls, loop: asyncio.AbstractEventLoop) -> KernelSync | None:
        """Return a `KernelSync` of this loop, or None if the system does not support it or denies it."""
        calls = _SYSTEM_CALLS.get(platform.machine())
        if platform.system() != "Linux" or calls is None or struct.calcsize("P") != 8:
            return None
        try:
            return cls(loop, calls)
        except (OSError, AttributeError, NotImplementedError):
            return None

    def _call(self, number: int, *arguments: object) -> int:
        """Make the system call `number` and return its result. Raises OSError if it fails."""
        result: int = self._syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def submit(self, descriptor: int, on_synced: OnSynced) -> bool:
        """Begin to sync a file; `on_synced` is called later, with the error or None.

        Return False if the kernel does not accept the request."""
        self._last = number = self._last + 1
        request = self._request
        request.number, request.descriptor = number, descriptor
        try:
            accepted = self._call(self._submit, self._context, ctypes.c_long(1), self._requests)
        except OSError:
            return False
        if accepted == 1:
            self._pending[number] = on_synced
        return accepted == 1

    def _on_event(self) -> None:
        try:
            os.eventfd_read(self._event_descriptor)
        except BlockingIOError:
            return
        self._complete(0)

    def _complete(self, min_count: int) -> None:
        """Call back for all finished syncs, waiting for at least `min_count` of them."""
        max_count = ctypes.c_long(MAX_PENDING)
        count = self._call(
            self._get_events, self._context, ctypes.c_long(min_count), max_count, self._events, None
        )
        for number, _, result, _ in _EVENT.iter_unpack(self._events.raw[: count * _EVENT.size]):
            on_synced = self._pending.pop(number)
            on_synced(None if result == 0 else _error(result))

    def close(self) -> None:
        """Wait for the pending syncs and release the kernel's context."""
        if self._event_descriptor < 0:
            return
        self._loop.remove_reader(self._event_descriptor)
        while self._pending:
            self._complete(1)
        self._call(self._destroy, self._context)
        os.close(self._event_descriptor)
        self._event_descriptor = -1


def _error(result: int) -> OSError:
    if result < 0:
        return OSError(-result, os.strerror(-result))
    return OSError(errno.EIO, f"fdatasync returned {result}")
