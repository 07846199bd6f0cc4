"""Members of share groups (KIP-932), driven by the client's state machines.

`konvene.client.share.membership` builds heartbeats, `konvene.client.share.fetch_machine` fetches and
acknowledgements; here is what an application does with the records. It processes them for a while, and then
accepts, releases, rejects or renews them; sometimes processing outlasts the record locks. A leaving member
usually closes its share session; a dying one loses everything.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from konvene.client.errors import ConnectionLost
from konvene.client.membership.state_machine import MembershipSettings, MemberState
from konvene.client.share.fetch_machine import AcknowledgeType, Delivered, FetchTerms, ShareMachine
from konvene.client.share.membership import ShareMembership
from konvene.errors import Errors
from konvene.messages.share_acknowledge import ShareAcknowledgeResponse
from konvene.messages.share_fetch import ShareFetchResponse
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from konvene.sim.event_queue import Entry
from konvene.sim.members import Kind
from konvene.sim.members.hostile.share import HostileShare
from konvene.sim.members.machine_member import MachineMember
from konvene.sim.members.member import RETRY_BACKOFF_MS
from konvene.sim.world.process import Answer

if TYPE_CHECKING:
    from konvene.sim.world.world import World

VERSION = 2
"""Version of ShareFetch and ShareAcknowledge: the first with renewals."""
NODE = 0
ACKNOWLEDGE_TIMEOUT_MS = 5_000


class ShareMember(MachineMember):
    """An honest member of a share group, which fetches, processes and acknowledges records."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name, group)
        self._reset()

    def _reset(self) -> None:
        self.machine: ShareMembership | None = None
        self.share: ShareMachine | None = None
        self.held: list[Delivered] = []
        self._heartbeat_timer: Entry | None = None
        self._closing = False

    def __repr__(self) -> str:
        state = "out" if self.machine is None else self.machine.state.value
        return f"<{self.name} {state} epoch {self.epoch}, {len(self.held)} records>"

    @property
    def is_stable(self) -> bool:
        return self.machine is not None and self.machine.state is MemberState.STABLE

    # --- life ---

    def start(self) -> None:
        super().start()
        self._reset()
        options, random = self.world.options, self.world.random
        if options["varied"] and random.random() < 0.3:
            self.change_subscription()
        member_id = f"{self.name}.{self.life}"
        self.machine = ShareMembership(
            self.group, member_id, self.topics,
            MembershipSettings(
                rack_id=random.choice([None, "a", "b"]), retry_backoff_ms=RETRY_BACKOFF_MS
            ),
        )  # fmt: skip
        settings = FetchTerms(
            max_wait_ms=random.choice([300, 2_000, 4_000]),
            max_records=random.choice([1, 5, 20, options["poll.records"]]),
            record_limit=random.random() < 0.5,
            max_bytes=random.choice([100, 2_000, 1 << 20]),
        )
        self.share = ShareMachine(self.group, member_id, settings, retry_backoff_ms=RETRY_BACKOFF_MS)
        self._schedule_heartbeat()
        self.schedule(0, self._tick)

    def die(self) -> None:
        super().die()
        self._reset()

    def leave(self) -> None:
        """Close the share session and leave the group, without waiting for responses."""
        m, share = self.machine, self.share
        if not self.alive or m is None or share is None:
            return
        now_ms = self.world.event_queue.now_ms
        if self.world.random.random() < 0.8:
            share.queue(now_ms + ACKNOWLEDGE_TIMEOUT_MS)
            share.close()
            for _, request in share.requests(now_ms, fetching=False):
                self.send(request, VERSION, lambda answer: None)
        m.leave(now_ms)
        if m.state is MemberState.LEAVING:
            self.send(m.request(now_ms, 1), 1, lambda answer: None)
        self.die()

    def change_subscription(self) -> None:
        """Subscribe to a random set of the topics."""
        topic_names = sorted(self.world.topics.by_name)
        topics = self.world.random.sample(topic_names, self.world.random.randint(1, len(topic_names)))
        self.topics = tuple(sorted(topics))
        if self.machine is not None:
            self.machine.subscribe(self.topics)
            self._schedule_heartbeat()

    # --- heartbeats ---

    def _send_heartbeat(self) -> None:
        m, now_ms = self.machine, self.world.event_queue.now_ms
        if m is not None and m.due_ms is not None and m.due_ms <= now_ms:
            self.send(m.request(now_ms, 1), 1, partial(self._handle_heartbeat, m))

    def _handle_heartbeat(self, m: ShareMembership, answer: Answer) -> None:
        if m is not self.machine or self.share is None:
            return
        now_ms = self.world.event_queue.now_ms
        if answer is None:
            m.handle_failure(ConnectionLost("no response"), now_ms)
        else:
            if isinstance(answer, Errors):
                answer = ShareGroupHeartbeatResponse(error_code=answer)
            assert isinstance(answer, ShareGroupHeartbeatResponse)
            m.handle_response(answer, now_ms)
        if m.state is MemberState.FENCED:
            self.held = []
            self.share.member_lost(ConnectionLost("fenced"))
            m.rejoin_fenced(now_ms)
        elif m.state is MemberState.FATAL:
            self.world.log_event(self.name, f"stops: {m.error}", None)
            self.die()
            self.world.member_stopped(self)
            return
        if m.state is MemberState.RECONCILING:
            m.confirm_owned(m.incarnation, m.target_version, m.target)
        self.share.assign(dict.fromkeys(m.owned, NODE))
        self._fetch()
        self._schedule_heartbeat()

    # --- records ---

    def _fetch(self) -> None:
        """Send all fetches and acknowledgements that are due."""
        share, now_ms = self.share, self.world.event_queue.now_ms
        if share is None:
            return
        if self.world.faults_disabled:
            share.terms = FetchTerms()
        for node, request in share.requests(now_ms, fetching=not self.held):
            self.send(request, VERSION, partial(self._handle_records, share, node))
        share.done.clear()
        share.complaints.clear()
        share.outdated.clear()

    def _handle_records(self, share: ShareMachine, node: int, answer: Answer) -> None:
        if share is not self.share:
            return
        if isinstance(answer, ShareFetchResponse | ShareAcknowledgeResponse):
            share.handle_response(node, answer, self.world.event_queue.now_ms)
        else:
            share.handle_failure(node, ConnectionLost("no response"), self.world.event_queue.now_ms)
        self._process_records()
        self._fetch()

    def _process_records(self) -> None:
        """Start to process the fetched records, which may take longer than their locks last."""
        share, world = self.share, self.world
        if share is None or self.held:
            return
        self.held = share.take()
        if not self.held:
            return
        duration_ms = world.latency_ms("process.ms")
        if not world.faults_disabled and world.random.random() < world.options["stall"]:
            duration_ms += world.random.randint(0, 2 * world.options["lock.ms"])
        self.schedule(duration_ms, self._acknowledge, share)

    def _acknowledge(self, share: ShareMachine) -> None:
        if share is not self.share:
            return
        random, options = self.world.random, self.world.options
        faults_disabled = self.world.faults_disabled
        acknowledge_type = self._acknowledge_type()
        for delivered in self.held:
            if not faults_disabled and random.random() < options["mixed.acks"]:
                acknowledge_type = self._acknowledge_type()
            share.acknowledge(delivered.unit, delivered.record.offset, acknowledge_type)
        self.held = []
        share.queue(self.world.event_queue.now_ms + ACKNOWLEDGE_TIMEOUT_MS)
        self._fetch()

    def _acknowledge_type(self) -> int:
        """Draw the acknowledge type of a record: mostly ACCEPT, without faults always."""
        random, options = self.world.random, self.world.options
        if self.world.faults_disabled or random.random() >= options["refuses"]:
            return AcknowledgeType.ACCEPT
        return random.choice([AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW])

    def _tick(self) -> None:
        """Run one iteration of the poll loop, for work that no response triggers."""
        self.schedule(self.world.options["heartbeat.ms"], self._tick)
        self._process_records()
        self._fetch()
        self._schedule_heartbeat()


KINDS = (Kind("share", ShareMember, HostileShare, assigned=True, shares=True),)
