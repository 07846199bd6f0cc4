"""One Kafka client in one process, driven by JSON lines: the protocol every driver here speaks.

A driver is a process so that a test may kill it, stop it and continue it like any member of a group.
Commands come on stdin, one JSON object a line: `{"id": 7, "do": "seek", ...}`. Each is answered on stdout by
`{"event": "reply", "id": 7, "result": ...}` or `{..., "error": {"code", "name", "message"}}`, where `code` is
Kafka's error code when the client gives it. What a client does by itself is reported as events, each with
`at`: the machine's monotonic clock in nanoseconds, comparable between processes.

A process has one role, given by its first command (`{"do": "start", "role": "consumer", ...}`), and ends with
`close` or when stdin ends.

consumer: hold, go, member, position, commit, committed, seek, pause, resume, offsets_for_times, watermarks,
    subscribe, unsubscribe; emits assigned, revoked, lost, records, committed, commit_failed. After each poll
    it commits what it read if it was started with `commit` = `sync` or `async`
producer: send, stream, settle; emits acked, failed. With a transactional id also init, begin, offsets,
    commit, abort
sharer: a member of a share group: poll, acknowledge, commit, commit_async, subscribe, unsubscribe, go, hold,
    leave;
    emits acknowledged, acknowledge_failed, and records while it goes on by itself
copier: reads, writes and commits what it read in one transaction each; emits copied, failed
admin: create_topics, delete_topics, ... (`ADMIN_VERBS`)
idle: nothing, between two roles

`options` of `start` are the library's own options, such as those of a secured connection; a driver makes of
`token` what its library takes for an access token.

An assignor is a name, or several with commas between them, the best first.
A partition is `[topic, partition]`, an offset `[topic, partition, offset, metadata]`, keys and values are
text. A verb that the library cannot do is answered with the name UNSUPPORTED_BY_CLIENT.

This file is the half that is the same for every Python library; a library brings an adapter for each role.
Its Java twin is `java/src/main/java/konvene/against/Driver.java`.
"""

import json
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

Partition = tuple[str, int]
Row = dict[str, Any]

ADMIN_VERBS = (
    "create_topics", "delete_topics", "list_topics", "describe_topics", "create_partitions",
    "describe_configs", "alter_configs",
    "list_groups", "describe_groups", "group_offsets", "alter_group_offsets", "delete_group_offsets",
    "delete_groups", "remove_members",
    "list_offsets", "delete_records", "describe_cluster",
)  # fmt: skip


class Unsupported(Exception):
    """The library has no way to do this."""


class Refused(Exception):
    """The broker rejected the request, and the library gave the error code."""

    def __init__(self, code: int | None, name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name


class ConsumerAdapter(Protocol):
    """What a library's consumer can do, in plain values; offsets by `(topic, partition)`."""

    def poll(self) -> list[Row]: ...
    def commit(self, offsets: dict[Partition, tuple[int, str]]) -> None: ...
    def committed(self, partitions: list[Partition]) -> dict[Partition, tuple[int, str | None]]: ...
    def position(self, partition: Partition) -> int: ...
    def seek(self, partition: Partition, offset: int) -> None: ...
    def pause(self, partitions: list[Partition]) -> None: ...
    def resume(self, partitions: list[Partition]) -> None: ...
    def offsets_for_times(self, times: dict[Partition, int]) -> dict[Partition, tuple[int, int]]: ...
    def watermarks(self, partition: Partition) -> tuple[int, int]: ...
    def member(self) -> Row: ...
    def close(self) -> None: ...


class ProducerAdapter(Protocol):
    """What a library's producer can do; `on_result(row, error)` is called once a record, by any thread."""

    def send(self, record: Row, on_result: Callable[[list[Any] | None, Exception | None], None]) -> None: ...
    def turn(self) -> None: ...
    def flush(self) -> None: ...
    def init(self) -> None: ...
    def begin(self) -> None: ...
    def send_offsets(self, offsets: dict[Partition, tuple[int, str]], group: Row) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Role(Protocol):
    def run(self, verb: str, command: Row) -> Any: ...
    def step(self) -> bool: ...
    def close(self) -> None: ...


_out = threading.Lock()


def emit(event: str, **fields: Any) -> None:
    line = json.dumps({"event": event, "at": time.monotonic_ns(), **fields})
    with _out:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def pairs(partitions: Any) -> list[list[Any]]:
    """Topic partitions of any library (or tuples) as `[[topic, partition], ...]`."""
    return [[p[0], p[1]] if isinstance(p, tuple) else [p.topic, p.partition] for p in partitions]


def text(data: bytes | str | None) -> str | None:
    return data.decode() if isinstance(data, bytes) else data


def octets(data: str | None) -> bytes | None:
    return None if data is None else data.encode()


def serve(
    library: str,
    roles: dict[str, Callable[[Row], Role]],
    errors: Callable[[BaseException], Refused | None],
) -> None:
    """Obey stdin until `close` or its end. `errors` finds the broker's code in a library's exception."""
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    roles = {**roles, "idle": lambda _command: Idle()}
    emit("ready", library=library)
    role: Role | None = None
    busy = False
    while True:
        try:
            line = lines.get(timeout=0 if busy else 1)
        except queue.Empty:
            line = ""
        if line is None:
            return
        if line:
            command = json.loads(line)
            role = _obey(role, command, roles, errors)
            if role is None:
                return
        busy = role is not None and _attempt(role, errors)


def _read(lines: "queue.Queue[str | None]") -> None:
    for line in sys.stdin:
        lines.put(line.strip())
    lines.put(None)


def _attempt(role: Role, errors: Callable[[BaseException], Refused | None]) -> bool:
    try:
        return role.step()
    except Exception as error:
        emit("error", error=error_fields(error, errors))
        time.sleep(0.1)
        return True


def _obey(
    role: Role | None,
    command: Row,
    roles: dict[str, Callable[[Row], Role]],
    errors: Callable[[BaseException], Refused | None],
) -> Role | None:
    """Run one command and answer it; None when the role is closed and the process may end."""
    verb, id = command["do"], command["id"]
    result = None
    try:
        if verb == "start":
            previous, role = role, Idle()
            if previous is not None:
                _close(previous)
            role = roles[command["role"]](command)
        elif verb == "close":
            if role is not None:
                role.close()
            role = None
        else:
            assert role is not None, "a role is started first"
            result = role.run(verb, command)
        emit("reply", id=id, result=result)
    except Exception as error:
        emit("reply", id=id, error=error_fields(error, errors))
    return role


class Idle:
    """The role of a process between two others, or after one that could not be started."""

    def run(self, verb: str, command: Row) -> Any:
        raise Unsupported(f"{verb} without a role")

    def step(self) -> bool:
        return False

    def close(self) -> None:
        pass


def _close(role: Role) -> None:
    """Close a role whose successor is about to start, however its client takes it."""
    try:
        role.close()
    except Exception as error:
        traceback.print_exception(error)


def error_fields(error: BaseException, errors: Callable[[BaseException], Refused | None]) -> Row:
    refused = error if isinstance(error, Refused) else errors(error)
    if refused is not None:
        return {"code": refused.code, "name": refused.name, "message": str(refused)}
    if isinstance(error, Unsupported):
        return {"code": None, "name": "UNSUPPORTED_BY_CLIENT", "message": str(error)}
    traceback.print_exception(error)
    return {"code": None, "name": type(error).__name__, "message": str(error)}


class ConsumerRole:
    """A group member, or a reader of assigned partitions: polls, reports the records, and commits their
    offsets."""

    def __init__(
        self,
        adapter: ConsumerAdapter,
        command: Row,
        errors: Callable[[BaseException], Refused | None],
    ) -> None:
        self.adapter = adapter
        self.commits_after_poll = command.get("commit")
        self.held = not (command.get("topics") or command.get("pattern") or command.get("assign"))
        self.errors = errors

    def step(self) -> bool:
        if self.held:
            return False
        records = self.adapter.poll()
        if not records:
            return True
        emit("records", records=records)
        offsets = {(r["topic"], r["partition"]): (r["offset"] + 1, "") for r in records}
        if self.commits_after_poll == "sync":
            self._commit(offsets)
        elif self.commits_after_poll == "async":
            self._optional("commit_async")(offsets, lambda error: self._emit_commit(offsets, error))
        return True

    def _optional(self, verb: str) -> Callable[..., Any]:
        """What only some libraries' adapters can do."""
        method = getattr(self.adapter, verb, None)
        if method is None:
            raise Unsupported(verb)
        return method  # type: ignore[no-any-return]

    def _commit(self, offsets: dict[Partition, tuple[int, str]]) -> None:
        try:
            self.adapter.commit(offsets)
        except Exception as error:
            self._emit_commit(offsets, error)
        else:
            self._emit_commit(offsets, None)

    def _emit_commit(self, offsets: dict[Partition, tuple[int, str]], error: Exception | None) -> None:
        if error is not None:
            emit("commit_failed", offsets=_quads(offsets), error=error_fields(error, self.errors))
        else:
            emit("committed", offsets=_quads(offsets))

    def run(self, verb: str, command: Row) -> Any:
        partitions = [(topic, partition) for topic, partition in command.get("partitions", ())]
        match verb:
            case "hold" | "go":
                self.held = verb == "hold"
                return None
            case "member":
                return self.adapter.member()
            case "position":
                return [[*p, self.adapter.position(p)] for p in partitions]
            case "commit":
                offsets = {(t, p): (offset, (more or [""])[0]) for t, p, offset, *more in command["offsets"]}
                self.adapter.commit(offsets)
                emit("committed", offsets=_quads(offsets))
                return None
            case "committed":
                return _quads(self.adapter.committed(partitions))
            case "seek":
                return self.adapter.seek((command["topic"], command["partition"]), command["offset"])
            case "pause":
                return self.adapter.pause(partitions)
            case "resume":
                return self.adapter.resume(partitions)
            case "offsets_for_times":
                return _quads(self.adapter.offsets_for_times(dict.fromkeys(partitions, command["timestamp"])))
            case "watermarks":
                return [[*p, *self.adapter.watermarks(p)] for p in partitions]
            case "subscribe":
                self.held = False
                return self._optional(verb)(command["topics"])
            case "unsubscribe":
                return self._optional(verb)()
        raise Unsupported(verb)

    def close(self) -> None:
        self.adapter.close()


def _quads(offsets: dict[Partition, tuple[Any, Any]]) -> list[list[Any]]:
    return [[*partition, *offsets[partition]] for partition in sorted(offsets)]


class ProducerRole:
    """A producer: of records it is handed (send), or of unique values at a rate (stream, settle); with a
    transactional id of transactions, too."""

    def __init__(self, adapter: ProducerAdapter, errors: Callable[[BaseException], Refused | None]) -> None:
        self.adapter = adapter
        self.errors = errors
        self.stream: Row | None = None
        self.started_ns = 0
        self.sent = 0
        self.acked: list[str] = []
        self.acked_total = 0
        self.failed_total = 0
        self.lock = threading.Lock()

    def run(self, verb: str, command: Row) -> Any:
        match verb:
            case "send":
                return self._send(command["records"])
            case "stream":
                self.stream, self.started_ns, self.sent = command, time.monotonic_ns(), 0
                return None
            case "settle":
                self.stream = None
                self.adapter.flush()
                self._emit_acked()
                return {"sent": self.sent, "acked": self.acked_total, "failed": self.failed_total}
            case "init" | "begin" | "commit" | "abort":
                return getattr(self.adapter, verb)()
            case "offsets":
                offsets = {(t, p): (offset, (more or [""])[0]) for t, p, offset, *more in command["offsets"]}
                return self.adapter.send_offsets(offsets, command)
        raise Unsupported(verb)

    def _send(self, records: list[Row]) -> list[Any]:
        answers: dict[int, tuple[list[Any] | None, Exception | None]] = {}
        for index, record in enumerate(records):
            self.adapter.send(record, lambda row, error, index=index: answers.update({index: (row, error)}))
        self.adapter.flush()
        for index in sorted(answers):
            error = answers[index][1]
            if error is not None:
                raise error
        return [answers[index][0] for index in range(len(records))]

    def step(self) -> bool:
        if self.stream is None:
            self.adapter.turn()
            return False
        stream = self.stream
        due = (time.monotonic_ns() - self.started_ns) * stream["rate_per_s"] // 1_000_000_000
        while self.sent < min(due, stream["count"]):
            value = f"{stream['prefix']}{self.sent}"
            self.sent += 1
            record = {"topic": stream["topic"], "key": value, "value": value}
            self.adapter.send(record, lambda _row, error, value=value: self._answered(value, error))
        self.adapter.turn()
        self._emit_acked()
        time.sleep(0.02)
        return True

    def _answered(self, value: str, error: Exception | None) -> None:
        with self.lock:
            if error is None:
                self.acked.append(value)
                self.acked_total += 1
            else:
                self.failed_total += 1
                emit("failed", value=value, error=error_fields(error, self.errors))

    def _emit_acked(self) -> None:
        with self.lock:
            if self.acked:
                emit("acked", values=self.acked)
            self.acked = []

    def close(self) -> None:
        self.adapter.close()


class AdminRole:
    """An admin client: a verb is the adapter's method of that name, if it has one."""

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter

    def run(self, verb: str, command: Row) -> Any:
        method = getattr(self.adapter, verb, None)
        if verb not in ADMIN_VERBS or method is None:
            raise Unsupported(verb)
        return method(**{name: value for name, value in command.items() if name not in ("do", "id")})

    def step(self) -> bool:
        return False

    def close(self) -> None:
        self.adapter.close()
