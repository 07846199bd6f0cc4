"""What is counted while the broker works: who has something to tell tells it here, and nowhere else.

Nothing here decides anything, and nothing here is kept over a restart: counts begin at 0 with the process, as
Prometheus expects. Rebalances that were derived from the log after a crash happened in an earlier process and
are not counted.

Still ugly: of an answer with several errors only the first is counted, for that is what its client acts upon
first; Kafka counts each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from konvene.broker.metrics.group_shard import CountedShard
from konvene.broker.metrics.group_types import KINDS, Moved, begins, counts_in_kafka, ends
from konvene.broker.metrics.instruments import Buckets, GroupLabels, Paced, Spans
from konvene.broker.metrics.placement_costs import Costs
from konvene.broker.metrics.share_state_shard import CountedShareStates
from konvene.codec.schema import Struct
from konvene.delivery.counts import Counts
from konvene.internal_topics import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from konvene.records.audit import RebalanceValue
from konvene.shard.causes import UNKNOWN

if TYPE_CHECKING:
    from konvene.broker.net.response_cache import CachedResponse
    from konvene.groups.shard import GroupShard

REBALANCE_S: Final = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
TOLD_S: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 15.0, 30.0)
DECISION_S: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
SYNC_S: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)

TOPICS: Final = "topics"
"""The label of all logs that are not the broker's own."""

OF_OFFSETS: Final = ("commits", "expired", "deletions")


class Meter:
    """The counts of one broker, since it started."""

    def __init__(self, most_groups: int, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self.labels = GroupLabels(most_groups)
        self.costs = Costs()
        self.begun: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        """Rebalances by group, protocol and first cause."""
        self.causes: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.rebalance_s: dict[tuple[str, str], Buckets] = {}
        self.units_moved: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.warmed_up: defaultdict[str, int] = defaultdict(int)
        """Tasks of streams groups that were to warm up and are to be active, by label."""
        self.by_kind: dict[str, Paced] = {kind: Paced() for kind in KINDS}
        """Rebalances as Kafka counts them."""
        self.of_offsets: dict[str, Paced] = {sensor: Paced() for sensor in OF_OFFSETS}
        self.answers: defaultdict[tuple[int, int], int] = defaultdict(int)
        """By the API's key and the error's code."""
        self.same: defaultdict[tuple[int, int], int] = defaultdict(int)
        """Answers that were given again unread, by `CachedResponse.kind`. Added to where they leave."""
        self.told_ms: defaultdict[int, int] = defaultdict(int)
        self.held = 0
        """Added to where a heartbeat is held."""
        self.ended: defaultdict[str, int] = defaultdict(int)
        """Transactions by how they ended: commit or abort. Added to when their markers are written."""
        self.share_writes = Paced()
        """Records of share state that somebody asked for. Added to by `metrics.share_state_shard`."""
        self.share_write_s = Spans()
        """From asking until it is durable. Added to where the answer leaves."""
        self.share_load_s = Spans()
        self.share_cut_at: dict[int, int] = {}
        """Where the log of each partition of share state was cut off last."""
        self.share_partition_load_s = Spans()
        """From the first fetch until the share partition could be fetched from."""
        self.share_done: dict[str, Counts] = {}
        """What share partitions counted that are no more, by their groups' labels."""
        self.decisions: dict[str, Buckets] = {}
        self.loads = Buckets(())
        self.longest_load_s = 0.0
        self.appends: defaultdict[str, int] = defaultdict(int)
        self.appended_bytes: defaultdict[str, int] = defaultdict(int)
        self.syncs: dict[str, Buckets] = {}
        self._finders: dict[type, Callable[[Any], int]] = {bytes: lambda _: 0, type(None): lambda _: 0}

    def __repr__(self) -> str:
        return f"<meter: {sum(self.answers.values()) + sum(self.same.values())} answers, {self.labels!r}>"

    @property
    def now_s(self) -> float:
        return self._clock()

    @property
    def make_shard(self) -> Callable[[], GroupShard]:
        """What makes the shards of a broker that has this meter."""
        return partial(CountedShard, self)

    def make_share_states(self, updates_per_snapshot: int) -> CountedShareStates:
        """A shard of share state that counts here."""
        return CountedShareStates(self, updates_per_snapshot)

    # --- groups ---

    def rebalance(self, group_id: str, story: RebalanceValue) -> None:
        """A row of the audit was told."""
        kind, label = story.group_type, self.labels.of(group_id)
        if begins(story):
            self.begun[label, kind, story.causes[0].kind if story.causes else UNKNOWN] += 1
            for cause in story.causes:
                self.causes[kind, cause.kind] += 1
        if ends(story):
            took = self.rebalance_s.get((label, kind))
            if took is None:
                took = self.rebalance_s[label, kind] = Buckets(REBALANCE_S)
            took.add(max(story.ended_ms - story.started_ms, 0) / 1000)
        paced = self.by_kind.get(kind)
        if paced is not None and counts_in_kafka(story):
            paced.add(1, self._clock())

    def moved(self, found: Moved) -> None:
        """Members are meant to have more than before."""
        label = self.labels.of(found.group_id)
        self.units_moved[label, found.protocol] += found.units
        if found.warmed_up:
            self.warmed_up[label] += found.warmed_up

    def offsets(self, sensor: str, count: int) -> None:
        """So many offsets were committed, have expired, or were deleted."""
        self.of_offsets[sensor].add(count, self._clock())

    def decided(self, event: str, took_s: float) -> None:
        """A shard decided what follows from a request or a timer."""
        buckets = self.decisions.get(event)
        if buckets is None:
            buckets = self.decisions[event] = Buckets(DECISION_S)
        buckets.add(took_s)

    def loaded(self, took_s: float) -> None:
        """A shard was read from its log."""
        self.loads.add(took_s)
        self.longest_load_s = max(self.longest_load_s, took_s)

    def forget(self, group_id: str) -> None:
        """The group is gone: its lines end, and its place is free."""
        self.labels.forget(group_id)
        self.costs.forget(group_id)
        self.share_done.pop(group_id, None)
        self.warmed_up.pop(group_id, None)
        by_group: tuple[dict[Any, Any], ...] = (self.begun, self.rebalance_s, self.units_moved)
        for counts in by_group:
            for key in [key for key in counts if key[0] == group_id]:
                del counts[key]

    def share_partition_done(self, group_id: str, counts: Counts) -> None:
        """A share partition is served no more."""
        self.share_done.setdefault(self.labels.of(group_id), Counts()).add(counts)

    # --- requests ---

    def answered(self, api_key: int, response: Any) -> None:
        """An answer leaves."""
        cls = type(response)
        find = self._finders.get(cls)
        if find is None:
            find = self._finders[cls] = error_finder(cls) or self._finders[bytes]
        self.answers[api_key, find(response)] += 1
        told_ms = told_interval(response)
        if told_ms:
            self.told_ms[told_ms] += 1

    def answered_again(self, known: CachedResponse) -> None:
        """An answer leaves that was given before."""
        self.same[known.kind] += 1

    def told(self) -> Buckets:
        """The intervals that members were told, in seconds."""
        buckets = Buckets(TOLD_S)
        for told_ms, times in (*self.told_ms.items(), *((key[1], n) for key, n in self.same.items())):
            if told_ms:
                buckets.add(told_ms / 1000, times)
        return buckets

    # --- logs ---

    def appended(self, topic: str, size: int) -> None:
        """A batch was appended to a log."""
        log = log_label(topic)
        self.appends[log] += 1
        self.appended_bytes[log] += size

    def synced(self, topic: str, took_s: float) -> None:
        """A log was made durable."""
        log = log_label(topic)
        buckets = self.syncs.get(log)
        if buckets is None:
            buckets = self.syncs[log] = Buckets(SYNC_S)
        buckets.add(took_s)


def log_label(topic: str) -> str:
    """The broker's own logs have a label each, all others share one."""
    return topic if topic in INTERNAL_TOPICS or topic == CLUSTER_METADATA_TOPIC else TOPICS


def told_interval(response: Any) -> int:
    """How soon a member is told to heartbeat again; 0 where the answer does not say, or refuses."""
    return 0 if getattr(response, "error_code", 0) else getattr(response, "heartbeat_interval_ms", 0)


def error_finder(cls: type[Struct]) -> Callable[[Any], int] | None:
    """What finds the first error code of a response, its own or one of its parts; None where it has none."""
    names = {field.name for field in cls.__fields__}
    parts: list[tuple[str, Callable[[Any], int]]] = []
    for field in cls.__fields__:
        if field.kind == "array" and isinstance(field.element, type):
            inner = error_finder(field.element)
            if inner is not None:
                parts.append((field.name, inner))
    if not parts:
        return (lambda value: value.error_code) if "error_code" in names else None
    return partial(_first_error, "error_code" in names, tuple(parts))


def _first_error(own: bool, parts: tuple[tuple[str, Callable[[Any], int]], ...], value: Any) -> int:
    if own and value.error_code:
        return int(value.error_code)
    for name, find in parts:
        for part in getattr(value, name) or ():
            code = find(part)
            if code:
                return code
    return 0
