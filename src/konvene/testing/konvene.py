"""`Konvene`: a broker for a test, in the test's process, on a thread of its own, in real time.

It is the broker that `konvene serve` runs, on a free port of 127.0.0.1. Its data is in memory unless a folder
is given. It can be stopped, killed and started again with the same data and port. The methods block until
they are done; an asyncio test calls the slow ones (`wait_stable`, `records`, `restart`) through
`asyncio.to_thread`.

Faults never apply to requests that this object itself sends (`produce`, `records`, ...).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from konvene.client import Admin, ClientSettings, Cluster, Producer, TopicPartition
from konvene.client.admin.acls import creation_of, deletion_of
from konvene.client.admin.groups import CommittedOffset, GroupListing
from konvene.client.consumer.consumer import Consumed
from konvene.client.consumer.fetch import read_partition
from konvene.client.producer.producer import Produced
from konvene.groups.classic.group import State
from konvene.log.disk.files import Disk, RealDisk
from konvene.log.disk.memory import MemoryDisk
from konvene.messages.create_acls import CreateAclsRequest
from konvene.messages.delete_acls import DeleteAclsRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.plurals import counted
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.environment import SYSTEM
from konvene.testing import captured_logs
from konvene.testing.client_options import ClientOptions
from konvene.testing.faults import Faults
from konvene.testing.group import GroupView, RebalanceView, group_view, rebalance_history
from konvene.testing.node import HOST, Node, settings_text
from konvene.testing.records import Writable, check_values, send_all
from konvene.testing.request_header import OWN_CLIENT
from konvene.testing.thread import LoopThread

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.security.acls import Acl
    from konvene.testing.security import BrokerSecurity

T = TypeVar("T")

POLL_INTERVAL_S = 0.005
INTERNAL = "__"
"""Prefix of the names of internal topics."""


@contextlib.contextmanager
def broker(
    settings: Mapping[str, object] | None = None, topics: Mapping[str, int] | None = None,
    folder: Path | str | None = None, **security: Any,
) -> Iterator[Konvene]:  # fmt: skip
    """Start a broker, yield it, and stop it at the end of the block.

    `settings` has Kafka's broker configs, `topics` the partition counts of topics to create by name. `folder`
    keeps the data on disk instead of in memory. `security`: as for `Konvene`."""
    with Konvene(settings, folder, **security) as konvene:
        for name, partitions in (topics or {}).items():
            konvene.create_topic(name, partitions=partitions)
        yield konvene


class Konvene:
    """A Kafka broker in this process. `faults` injects faults; `log` has the lines that the broker logged."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        folder: Path | str | None = None,
        *,
        security: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        acls: Iterable[str] = (),
        certificate: str = "valid",
        mechanism: str = "PLAIN",
    ) -> None:
        """`security` is the listener's protocol; `users` has passwords by name. `acls` are lines such as
        `alice READ topic:orders`; without any, each user may do everything. `certificate` is the server's:
        valid, expired or wrong-host. `mechanism` is the SASL mechanism of the users; OAUTHBEARER accepts
        tokens without a signature, which anyone can make. Raises ValueError."""
        self._security: BrokerSecurity | None = None
        if security != "PLAINTEXT":
            from konvene.testing.security import BrokerSecurity

            self._security = BrokerSecurity(security, users, acls, certificate, mechanism)
        elif users or acls:
            raise ValueError(
                "users and acls need a protocol that identifies clients, such as security='SASL_SSL'"
            )
        secured = {} if self._security is None else self._security.settings
        self.settings = secured | settings_text(settings or {})
        self._has_credentials = False  # ACLs and credentials are in the metadata log.
        self.faults = Faults(self)
        self.log: list[str] = []
        self.port = 0
        self._disk: Disk = MemoryDisk() if folder is None else RealDisk()
        self._path = "/konvene" if folder is None else str(folder)
        self._reserved: socket.socket | None = None
        self._thread: LoopThread | None = None
        self._node: Node | None = None
        self._rebalances_before_stop: list[RebalanceView] = []

    def __repr__(self) -> str:
        state = f"at {self.bootstrap}" if self._node is not None else "stopped"
        return f"<konvene {state}, {self.faults!r}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """Address for `bootstrap.servers`: `127.0.0.1:port`."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        return self._node is not None

    # --- starting and stopping ---

    def start(self) -> None:
        """Start the broker unless it runs; after a stop or kill, with the same data and port."""
        if self._node is not None:
            return
        if self._reserved is None:
            # Bound without listening, so that no other process gets this port while the broker is down.
            self._reserved = socket.socket()
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind((HOST, 0))
            self.port = self._reserved.getsockname()[1]
        thread = LoopThread()
        captured_logs.start_capture(thread.ident, self.log)
        self._thread = thread
        try:
            self._node = thread.call(self._start_node())
        except BaseException:
            self._discard_node()
            raise

    async def _start_node(self) -> Node:
        node = Node(self._disk, self._path, self.settings, self.faults)
        await node.start(self.port, "PLAINTEXT" if self._security is None else self._security.protocol)
        if self._security is not None and not self._has_credentials:
            await self._change_acls(node, self._security.acls, ())
            await self._set_scram_passwords(self._security)
            self._has_credentials = True
        return node

    async def _set_scram_passwords(self, security: BrokerSecurity) -> None:
        """Set the SCRAM credentials of the users, where their mechanism needs them."""
        if not security.scram_passwords:
            return
        from konvene.client.admin.credentials import ScramPassword

        settings = ClientSettings(client_id=OWN_CLIENT, security=security.admin())
        async with Cluster(self.bootstrap, settings) as cluster:
            for user, password in security.scram_passwords.items():
                changes = {security.mechanism: ScramPassword(password)}
                await Admin(cluster).alter_user_scram_credentials(user, changes)

    async def _change_acls(self, node: Node, created: Iterable[Acl], deleted: Iterable[Acl]) -> None:
        """Create and delete ACLs in the broker itself."""
        creations, filters = tuple(map(creation_of, created)), tuple(map(deletion_of, deleted))
        context = RequestContext(fresh_ids=SYSTEM.fresh_ids(len(creations)))
        for request in (CreateAclsRequest(creations=creations), DeleteAclsRequest(filters=filters)):
            await node.broker.catalogue.submit(request, context)

    def stop(self) -> None:
        """Shut the broker down: it answers waiting requests and flushes everything to disk."""
        if self._node is not None and self._thread is not None:
            self._rebalances_before_stop = self.rebalances()
            self._thread.call(self._node.stop())
            self._discard_node()

    def kill(self, *, power_cut: bool = False) -> None:
        """Kill the broker as `kill -9` does; with `power_cut`, unsynced bytes are lost too.

        Raises ValueError for a power cut of a broker whose data is in a folder."""
        if power_cut and not isinstance(self._disk, MemoryDisk):
            raise ValueError(
                "power_cut needs a broker with its data in memory; this one has its data in a folder"
            )
        if self._node is not None and self._thread is not None:
            self._rebalances_before_stop = self.rebalances()
            self._disk = self._thread.call(self._node.die(power_cut=power_cut))
            self._discard_node()

    def restart(self, *, kill: bool = False) -> None:
        """Stop the broker, or kill it if `kill`, and start it with the same data and port."""
        self.kill() if kill else self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker, cancel all faults, and release its port."""
        self.faults.clear()
        self.stop()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        if self._security is not None:
            self._security.close()

    def _discard_node(self) -> None:
        self._node = None
        if self._thread is not None:
            self._thread.close()
            captured_logs.stop_capture(self._thread.ident)
            self._thread = None

    # --- access to the broker ---

    def with_broker(self, function: Callable[[Broker], T]) -> T:
        """Call a function with the `Broker` object on its event loop, and return the result."""

        async def do(node: Node) -> T:
            return function(node.broker)

        return self._run_on_loop(do)

    def _run_on_loop(self, work: Callable[[Node], Coroutine[Any, Any, T]], timeout: float = 60.0) -> T:
        if self._node is None or self._thread is None:
            raise RuntimeError("the broker is stopped; start() starts it again")
        return self._thread.call(work(self._node), timeout)

    def _with_client(self, work: Callable[[Cluster], Coroutine[Any, Any, T]], timeout: float = 60.0) -> T:
        """Call the coroutine function `work` with a new `konvene.client.Cluster` for this broker, and return
        its result; it may take `timeout` seconds."""

        async def do(_node: Node) -> T:
            settings = ClientSettings(client_id=OWN_CLIENT)
            if self._security is not None:
                settings = settings._replace(security=self._security.admin())
            async with Cluster(self.bootstrap, settings) as cluster:
                return await work(cluster)

        return self._run_on_loop(do, timeout)

    # --- security ---

    def client_options(self, user: str = "") -> ClientOptions:
        """Return the options of each client library for a user of this broker.

        Raises ValueError for an unknown user."""
        if self._security is None:
            return ClientOptions(bootstrap=self.bootstrap)
        return self._security.options(user, self.bootstrap)

    def client_properties(self, user: str) -> Path:
        """Write the `client.properties` file of a user, for `--command-config`, and return its path."""
        if self._security is None:
            raise ValueError("a plaintext broker needs no client.properties")
        return self._security.write_properties(user, self.bootstrap)

    def allow(self, acl: str) -> None:
        """Create ACLs, such as `alice READ topic:orders`, while clients are connected."""
        self._alter_acls(acl, is_created=True)

    def revoke(self, acl: str) -> None:
        """Delete ACLs that were created from the same text; the next request without the right is denied."""
        self._alter_acls(acl, is_created=False)

    def _alter_acls(self, text: str, *, is_created: bool) -> None:
        from konvene.testing.security import parse_acl

        if self._security is None or not self._security.has_acls:
            raise ValueError("this broker has no authorizer; start it with acls=[…]")
        acls = parse_acl(text)

        async def alter(node: Node) -> None:
            await self._change_acls(node, acls if is_created else (), () if is_created else acls)

        self._run_on_loop(alter)

    # --- topics and records ---

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic. Raises `konvene.client.KafkaError`, such as TOPIC_ALREADY_EXISTS."""
        texts = settings_text(configs or {})
        self._with_client(lambda c: Admin(c).create_topic(name, partitions=partitions, configs=texts))

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises `konvene.client.KafkaError`."""
        self._with_client(lambda c: Admin(c).delete_topics([name]))

    def topics(self) -> dict[str, int]:
        """Return partition counts by topic name, without internal topics."""
        found = self.with_broker(
            lambda b: {t.name: t.partitions for t in b.catalogue.topics.by_name.values()}
        )
        return {name: found[name] for name in sorted(found) if not name.startswith(INTERNAL)}

    def produce(
        self, topic: str, values: Iterable[Writable], *, key: str | bytes | None = None,
        partition: int | None = None,
    ) -> list[Produced]:  # fmt: skip
        """Write a record for each value, in order, and return the partition, offset and timestamp of each.

        A value is text or bytes, a pair of key and value, or a `Record` with headers, timestamp and
        partition. `key` and `partition` apply to values without their own. The key or partition selects the
        partition; otherwise it is round-robin.

        Raises TypeError if `values` is one value instead of a list."""
        check_values(values)

        async def work(cluster: Cluster) -> list[Produced]:
            async with Producer(cluster) as producer:
                return await send_all(producer, topic, values, key=key, partition=partition)

        return self._with_client(work)

    def records(self, topic: str) -> list[Consumed]:
        """Return all records of a topic, ordered by partition and offset."""

        async def work(cluster: Cluster) -> list[Consumed]:
            found = []
            for each in (await cluster.topic(topic)).partitions:
                async for r in read_partition(cluster, TopicPartition(topic, each.partition)):
                    found.append(
                        Consumed(topic, each.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
                    )
            return found

        return self._with_client(work)

    def consume(self, topic: str, count: int = 1, timeout: float = 10.0) -> list[Consumed]:
        """Wait until the topic has `count` records and return all its records, ordered by timestamp.

        Uses no group. Raises TimeoutError after `timeout` seconds."""

        async def work(_node: Node) -> bool:
            return await _until(lambda: self._end_offsets(topic) >= count, timeout)

        if not self._run_on_loop(work, timeout + 10):
            found = len(self.records(topic))
            raise TimeoutError(f"{topic} has {counted(found, 'record')} after {timeout} s, not {count}")
        return sorted(self.records(topic), key=lambda r: r.timestamp)

    def _end_offsets(self, topic: str) -> int:
        """Return the number of offsets from start to end of a topic's logs, summed over partitions; 0 if it
        does not exist.

        To be called on the broker's event loop."""
        assert self._node is not None
        broker = self._node.broker
        known = broker.catalogue.topics.by_name.get(topic)
        logs = [broker.partitions.get(topic, n) for n in range(known.partitions if known else 0)]
        return sum(log.end_offset - log.start_offset for log in logs if log is not None)

    # --- groups ---

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int | CommittedOffset]) -> None:
        """Commit offsets, by (topic, partition), for a group without members; create the group if it does not
        exist. Raises `konvene.client.KafkaError`, such as UNKNOWN_MEMBER_ID if the group has members."""
        rows = {TopicPartition(*where): at for where, at in offsets.items()}
        self._with_client(lambda c: Admin(c).alter_offsets(group, rows))

    def group(self, name: str) -> GroupView:
        """Return the current state of a group."""
        return self.with_broker(lambda broker: group_view(broker, name))

    def wait_stable(self, group: str, members: int | None = None, timeout: float = 10.0) -> GroupView:
        """Wait until the group is Stable, with `members` members if given, and return it.

        Raises TimeoutError with the group's state and last rebalances."""

        def condition(found: GroupView) -> bool:
            return found.state == State.STABLE and (members is None or len(found.members) == members)

        wanted = "any members" if members is None else counted(members, "member")
        return self.wait_group(group, condition, timeout=timeout, description=f"Stable with {wanted}")

    def wait_group(
        self,
        group: str,
        condition: Callable[[GroupView], bool],
        timeout: float = 10.0,
        description: str = "in the expected state",
    ) -> GroupView:
        """Wait until `condition` is true of the group, and return it.

        Raises TimeoutError with `description`, which completes the sentence "the group is not ..."."""

        async def work(node: Node) -> bool:
            return await _until(lambda: condition(group_view(node.broker, group)), timeout)

        if self._run_on_loop(work, timeout + 10):
            return self.group(group)
        texts = "\n".join(f"  {each}" for each in self.rebalances(group)[-5:])
        raise TimeoutError(
            f"group {group} is not {description} within {timeout} s; {self.group(group)}\n"
            f"its last rebalances:\n{texts or '  none'}"
        )

    def rebalances(self, group: str | None = None) -> list[RebalanceView]:
        """Return the rebalances of a group, or of all groups, oldest first.

        Includes those before a restart; works while the broker is stopped, too."""
        if self._node is None:
            return [each for each in self._rebalances_before_stop if group in (None, each.group)]
        return self.with_broker(lambda broker: rebalance_history(broker, group))

    def groups(self) -> list[str]:
        """Return the names of all groups."""
        return self._with_client(lambda c: _group_names(Admin(c)))

    def clean(self, *, keep_topics: Collection[str] = (), keep_groups: Collection[str] = ()) -> None:
        """Cancel all faults and delete all groups and topics, except internal ones and those to keep."""
        self.faults.clear()
        self.faults.log.clear()

        async def work(cluster: Cluster) -> None:
            admin = Admin(cluster)
            for listing in await admin.list_groups():
                if listing.group_id not in keep_groups:
                    await _remove_group(admin, listing)
            names = {topic.name for topic in await admin.list_topics()}.difference(keep_topics)
            await admin.delete_topics(name for name in names if not name.startswith(INTERNAL))

        self._with_client(work)


async def _group_names(admin: Admin) -> list[str]:
    return sorted(listing.group_id for listing in await admin.list_groups())


async def _remove_group(admin: Admin, listing: GroupListing) -> None:
    group = listing.group_id
    if listing.type == "share":
        for each in (await admin.describe_share_group(group)).members:
            leaves = ShareGroupHeartbeatRequest(group_id=group, member_id=each.member_id, member_epoch=-1)
            await admin.cluster.ask_coordinator(group, leaves, lambda a: a.error_code)
    elif listing.type == "streams":
        for worker in (await admin.describe_streams_group(group)).members:
            ends = StreamsGroupHeartbeatRequest(group_id=group, member_id=worker.member_id, member_epoch=-1)
            await admin.cluster.ask_coordinator(group, ends, lambda a: a.error_code)
    else:
        members = [m.member_id for m in (await admin.describe_group(group)).members]
        if members:
            await admin.remove_members(group, member_ids=members, reason="the test is over")
    with contextlib.suppress(Exception):  # A client that still runs may have joined again.
        await admin.delete_groups([group])


async def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(POLL_INTERVAL_S)
    return True


__all__ = ["Konvene", "broker"]
