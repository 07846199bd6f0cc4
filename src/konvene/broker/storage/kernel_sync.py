"""Files synced by the kernel while nobody waits in a thread: Linux' own asynchronous I/O.

A thread that waits for the disk costs more than the waiting: it is woken, wants the interpreter, and wakes
the loop. Here a sync is one call that returns at once, and its end is an event of the loop like any other: a
quarter of the CPU, and as many at a time as there are logs. Where the system does not have it, or does not
let us (`make` gives None), and where it takes no more (`begin` gives False), there are `DiskThreads`.

Only `fdatasync` is asked for, of descriptors that stay open until they are told of.
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

Told = Callable[[OSError | None], None]

AT_ONCE = 256
"""So many may be under way."""

FDSYNC = 3
_TELLS_A_DESCRIPTOR = 1
_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
"""io_setup, io_destroy, io_submit, io_getevents, by machine."""
_EVENT = struct.Struct("@QQqq")


class _Request(ctypes.Structure):
    """The kernel's `iocb`, where the machine is little-endian."""

    _fields_ = (
        ("number", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32),
        ("operation", ctypes.c_uint16), ("priority", ctypes.c_int16), ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64), ("size", ctypes.c_uint64), ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("tells", ctypes.c_uint32),
    )  # fmt: skip


class KernelSync:
    """See the top of this file. Belongs to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, calls: tuple[int, int, int, int]) -> None:
        """Raises OSError where it cannot be had."""
        self._setup, self._destroy, self._submit, self._get = calls
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._ask(self._setup, AT_ONCE, ctypes.byref(self._context))
        self._events = ctypes.create_string_buffer(_EVENT.size * AT_ONCE)
        self._tells = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._request = _Request(operation=FDSYNC, flags=_TELLS_A_DESCRIPTOR, tells=self._tells)
        self._place = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._waiting: dict[int, Told] = {}
        self._last = 0
        self._loop = loop
        loop.add_reader(self._tells, self._look)

    def __repr__(self) -> str:
        return f"<{len(self._waiting)} syncs under way>"

    @classmethod
    def make(cls, loop: asyncio.AbstractEventLoop) -> KernelSync | None:
        """None where the system does not have it or does not let us."""
        calls = _CALLS.get(platform.machine())
        if platform.system() != "Linux" or calls is None or struct.calcsize("P") != 8:
            return None
        try:
            return cls(loop, calls)
        except (OSError, AttributeError, NotImplementedError):
            return None

    def _ask(self, call: int, *words: object) -> int:
        found: int = self._call(ctypes.c_long(call), *words)
        if found < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return found

    def begin(self, descriptor: int, told: Told) -> bool:
        """Sync it; `told` hears of the end, later. False where nothing was begun."""
        self._last = number = self._last + 1
        request = self._request
        request.number, request.descriptor = number, descriptor
        try:
            begun = self._ask(self._submit, self._context, ctypes.c_long(1), self._place)
        except OSError:
            return False
        if begun == 1:
            self._waiting[number] = told
        return begun == 1

    def _look(self) -> None:
        """Tell whose sync is over."""
        try:
            os.eventfd_read(self._tells)
        except BlockingIOError:
            return
        self._tell(0)

    def _tell(self, least: int) -> None:
        most = ctypes.c_long(AT_ONCE)
        count = self._ask(self._get, self._context, ctypes.c_long(least), most, self._events, None)
        for number, _, result, _ in _EVENT.iter_unpack(self._events.raw[: count * _EVENT.size]):
            told = self._waiting.pop(number)
            told(
                None
                if result == 0
                else OSError(-result, os.strerror(-result))
                if result < 0
                else _odd(result)
            )

    def close(self) -> None:
        """Wait for those that are under way, and end."""
        if self._tells < 0:
            return
        self._loop.remove_reader(self._tells)
        while self._waiting:
            self._tell(1)
        self._ask(self._destroy, self._context)
        os.close(self._tells)
        self._tells = -1


def _odd(result: int) -> OSError:
    return OSError(errno.EIO, f"the kernel says {result} of a sync")
