"""Members of share groups (KIP-932): what they say, and when, is decided by the client.

`konvene.client.share.membership` makes heartbeats and `share_machine` fetches and acknowledgements; here is
what an application does with the records. It works on them for a while, and then accepts, gives back, rejects
or asks for more time; now and then it takes longer than their locks last. It closes its session when it
leaves, as a rule, and forgets everything when it dies.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from konvene.client.errors import ConnectionLost
from konvene.client.membership.state_machine import MembershipSettings, MemberState
from konvene.client.share.fetch_machine import AcknowledgeType, Delivered, FetchTerms, ShareMachine
from konvene.client.share.membership import ShareMembership
from konvene.errors import Errors
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from konvene.sim.event_queue import Entry
from konvene.sim.members import Kind
from konvene.sim.members.hostile.share import HostileShare
from konvene.sim.members.member import RETRY_BACKOFF_MS, Member
from konvene.sim.world.process import Answer

if TYPE_CHECKING:
    from konvene.sim.world.world import World

VERSION = 2
"""Of ShareFetch and ShareAcknowledge: the first that renews."""
NODE = 0
PATIENCE_MS = 5_000


class ShareMember(Member):
    """See the top of this file."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name, group)
        self._reset()

    def _reset(self) -> None:
        self.machine: ShareMembership | None = None
        self.share: ShareMachine | None = None
        self.held: list[Delivered] = []
        self._beats: Entry | None = None
        self._closing = False

    def __repr__(self) -> str:
        state = "out" if self.machine is None else self.machine.state.value
        return f"<{self.name} {state} epoch {self.epoch}, {len(self.held)} records>"

    @property
    def settled(self) -> bool:
        return self.machine is not None and self.machine.state is MemberState.STABLE

    @property
    def epoch(self) -> int:
        return -1 if self.machine is None else self.machine.epoch

    @property
    def member_id(self) -> str:
        return "" if self.machine is None else self.machine.member_id

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
        terms = FetchTerms(
            max_wait_ms=random.choice([300, 2_000, 4_000]),
            max_records=random.choice([1, 5, 20, options["poll.records"]]),
            record_limit=random.random() < 0.5,
            max_bytes=random.choice([100, 2_000, 1 << 20]),
        )
        self.share = ShareMachine(self.group, member_id, terms, retry_backoff_ms=RETRY_BACKOFF_MS)
        self._plan()
        self.schedule(0, self._tick)

    def die(self) -> None:
        super().die()
        self._reset()

    def leave(self) -> None:
        """Close the session and say goodbye; wait for no answer."""
        m, share = self.machine, self.share
        if not self.alive or m is None or share is None:
            return
        now_ms = self.world.event_queue.now_ms
        if self.world.random.random() < 0.8:
            share.queue(now_ms + PATIENCE_MS)
            share.close()
            for _, request in share.requests(now_ms, fetching=False):
                self.send(request, VERSION, lambda answer: None)
        m.leave(now_ms)
        if m.state is MemberState.LEAVING:
            self.send(m.request(now_ms, 1), 1, lambda answer: None)
        self.die()

    def change_subscription(self) -> None:
        """Read other topics from now on."""
        names = sorted(self.world.topics.by_name)
        some = self.world.random.sample(names, self.world.random.randint(1, len(names)))
        self.topics = tuple(sorted(some))
        if self.machine is not None:
            self.machine.subscribe(self.topics)
            self._plan()

    # --- heartbeats ---

    def _plan(self) -> None:
        """The next heartbeat, when it is due."""
        if self._beats is not None:
            self._beats.cancel()
        due_ms = self.machine.due_ms if self.machine is not None else None
        wait_ms = None if due_ms is None else max(0, due_ms - self.world.event_queue.now_ms)
        self._beats = None if wait_ms is None else self.schedule(wait_ms, self._beat)

    def _beat(self) -> None:
        m, now_ms = self.machine, self.world.event_queue.now_ms
        if m is not None and m.due_ms is not None and m.due_ms <= now_ms:
            self.send(m.request(now_ms, 1), 1, partial(self._heard, m))

    def _heard(self, m: ShareMembership, answer: Answer) -> None:
        if m is not self.machine or self.share is None:
            return
        now_ms = self.world.event_queue.now_ms
        if answer is None:
            m.handle_failure(ConnectionLost("nothing was heard"), now_ms)
        else:
            if isinstance(answer, Errors):
                answer = ShareGroupHeartbeatResponse(error_code=answer)
            m.handle_response(answer, now_ms)
        if m.state is MemberState.FENCED:
            self.held = []
            self.share.member_lost(ConnectionLost("thrown out"))
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
        self._plan()

    # --- records ---

    def _fetch(self) -> None:
        """Whatever there is to ask for, and to tell."""
        share, now_ms = self.share, self.world.event_queue.now_ms
        if share is None:
            return
        if self.world.faults_disabled:
            share.terms = FetchTerms()
        for node, request in share.requests(now_ms, fetching=not self.held):
            self.send(request, VERSION, partial(self._brought, share, node))
        share.done.clear()
        share.complaints.clear()
        share.outdated.clear()

    def _brought(self, share: ShareMachine, node: int, answer: Answer) -> None:
        if share is not self.share:
            return
        if answer is None or isinstance(answer, Errors):
            share.handle_failure(node, ConnectionLost("nothing was heard"), self.world.event_queue.now_ms)
        else:
            share.handle_response(node, answer, self.world.event_queue.now_ms)
        self._work()
        self._fetch()

    def _work(self) -> None:
        """Take what is there and work on it, which takes its time, and may take longer than it is locked."""
        share, world = self.share, self.world
        if share is None or self.held:
            return
        self.held = share.take()
        if not self.held:
            return
        takes_ms = world.latency_ms("process.ms")
        if not world.faults_disabled and world.random.random() < world.options["stall"]:
            takes_ms += world.random.randint(0, 2 * world.options["lock.ms"])
        self.schedule(takes_ms, self._done, share)

    def _done(self, share: ShareMachine) -> None:
        if share is not self.share:
            return
        random, options = self.world.random, self.world.options
        calm = self.world.faults_disabled
        kind = self._verdict()
        for each in self.held:
            if not calm and random.random() < options["mixed.acks"]:
                kind = self._verdict()
            share.acknowledge(each.unit, each.record.offset, kind)
        self.held = []
        share.queue(self.world.event_queue.now_ms + PATIENCE_MS)
        self._fetch()

    def _verdict(self) -> int:
        """What becomes of a record."""
        random, options = self.world.random, self.world.options
        if self.world.faults_disabled or random.random() >= options["refuses"]:
            return AcknowledgeType.ACCEPT
        return random.choice([AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW])

    def _tick(self) -> None:
        """Now and then: what waits only for time."""
        self.schedule(self.world.options["heartbeat.ms"], self._tick)
        self._work()
        self._fetch()
        self._plan()


KINDS = (Kind("share", ShareMember, HostileShare, assigned=True, shares=True),)
