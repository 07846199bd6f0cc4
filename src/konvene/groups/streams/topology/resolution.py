"""Resolution of a streams topology's expressions: when it is requested, and how its result changes the group.

The shell resolves them as for consumer groups (`consumer.work`), all expressions of the topology together:

    requested                                                       not before
    as soon as a topology has an unresolved expression
    when topics were created since, for an expression may match     ten seconds after the last result
    every group.consumer.regex.refresh.interval.ms, since rights
    to describe a topic may have changed

A timer covers the last two, so the heartbeat of a stable member costs the same with and without expressions.

The result is soft state: Kafka 4.4 has no record for it. A coordinator that was just loaded does not know
which topics its groups read. It requests a resolution at once; until the result arrives the group has the
state of its records: a ready group stays ready, members keep their tasks and reconcile towards the last
target, no new target is computed, and the epoch is bumped only for changes of members. The group's hash
covers the matched topics; if the result has the same hash nothing changes, and if topics changed meanwhile
the epoch is bumped once. A group that was not ready has no tasks to lose, and stays without.

A deleted topic is dropped as soon as the topics image lacks it, without a resolution. An empty group keeps
its last matches, for requests that move its offsets and need to know what it reads.

If a resolution fails, the last result stays.
"""

from __future__ import annotations

from dataclasses import replace

from konvene.groups.consumer.subscriptions import REFRESH_PAUSE_MS, hash_of
from konvene.groups.consumer.work import RESOLVE_REGEXES, RegexesResolved, RegexesToResolve
from konvene.groups.streams.decision import Decision, refresh_key
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.configure import UNRESOLVED, ConfiguredTopology, configure
from konvene.groups.streams.topology.expressions import (
    Matches,
    Resolved,
    current_matches,
    expand_expressions,
    expressions,
)
from konvene.groups.streams.topology.topology import Topology
from konvene.shard import causes
from konvene.shard.contract import NOTHING, Context, Disarm, Effect, Outcome
from konvene.shard.errors import GroupError

OUTDATED = -1
"""A topics version that makes the next heartbeat request a resolution."""

# --- with a heartbeat ------------------------------------------------------------------------------


def configure_topology(
    decision: Decision, topology: Topology, *, changed: bool
) -> tuple[ConfiguredTopology, bool]:
    """Return the configured topology, recomputed if its topics changed, and whether that bumps the epoch.

    It is `UNRESOLVED` while the expressions are not resolved. `changed`: the caller bumps the epoch anyway,
    and no cause has to be added. Raises `GroupError` as `configure` does.
    """
    context, before = decision.context, decision.soft.configured
    replaced = topology is not decision.group.topology
    if before is not None and decision.soft.hashed_topics is context.topics and not replaced:
        return before, False
    if expressions(decision.group.topology) and not expressions(topology):
        decision.timers.append(Disarm(refresh_key(decision.group.group_id)))
        decision.remember(resolved=None)
    matches = _matches(decision, topology)
    if matches is None:
        if before is not None:
            decision.remember(configured=None)
        return UNRESOLVED, False
    expanded = expand_expressions(topology, matches)
    decision.metadata_hash = hash_of(expanded.required_topics, context)
    is_changed = decision.metadata_hash != decision.group.metadata_hash
    is_other = before is not None and before.topology != expanded
    configured = before
    if configured is None or is_changed or replaced or is_other:
        by_name = context.topics.by_name
        counts = {name: by_name[name].partitions for name in expanded.required_topics if name in by_name}
        configured = configure(topology, counts, context.config["konvene.streams.mode"], matches)
    decision.remember(hashed_topics=context.topics, configured=configured)
    if not replaced and (is_other or (before is None and expressions(topology))):
        # Heartbeats so far got no endpoints: make them outdated.
        decision.remember(endpoint_epoch=decision.soft.endpoint_epoch + 1)
    is_changed |= is_other and not replaced
    if is_changed and not changed and not replaced:
        _add_cause(decision, before, configured)
    return configured, is_changed


def update_validated_epoch(decision: Decision, topology: Topology, configured: ConfiguredTopology) -> bool:
    """Set the validated topology epoch; return whether it changed.

    It is the epoch of the topology if that is ready, else -1; while expressions are not resolved it stays.
    """
    before = decision.group.validated_topology_epoch
    if configured.is_resolved:
        decision.validated_topology_epoch = topology.epoch if configured.is_ready else -1
    elif topology is not decision.group.topology:
        decision.validated_topology_epoch = -1
    if decision.validated_topology_epoch == before:
        return False
    if configured.is_resolved:
        decision.cause(causes.TOPOLOGY_READY if configured.is_ready else causes.TOPOLOGY_NOT_READY)
    return True


def _add_cause(decision: Decision, before: ConfiguredTopology | None, configured: ConfiguredTopology) -> None:
    """Add the cause of an epoch bump: expressions match other topics than before, or topics changed."""
    if not expressions(decision.topology) or configured.topology is None:
        decision.cause(causes.TOPIC_METADATA_CHANGED)
        return
    read = before.topology.source_topics if before is not None and before.topology is not None else ()
    gained = [topic for topic in configured.topology.source_topics if topic not in read]
    one = gained[0] if len(gained) == 1 else None
    decision.cause(causes.REGEX_REFRESHED if gained else causes.TOPIC_METADATA_CHANGED, topic=one)


def _matches(decision: Decision, topology: Topology) -> Matches | None:
    """Return the existing topics that each expression matches; None if any expression is not resolved.

    If one is not, or if topics were created since, also request a resolution, or arm the timer for it.
    """
    apply_resolution, topics = decision.soft.resolved, decision.context.topics
    matches = current_matches(topology, apply_resolution, topics)
    if matches is None:
        _request_resolution(decision, topology)
    elif apply_resolution is not None and apply_resolution.version < topics.version and matches:
        paused_ms = apply_resolution.timestamp_ms + REFRESH_PAUSE_MS + 1 - decision.context.now_ms
        if 0 < paused_ms <= REFRESH_PAUSE_MS + 1:  # Otherwise the pause is over, or a clock was set back.
            decision.arm(refresh_key(decision.group.group_id), paused_ms)
        else:
            _request_resolution(decision, topology)
    return matches


def _request_resolution(decision: Decision, topology: Topology) -> None:
    if decision.soft.resolving:
        return
    context = decision.context
    wanted = RegexesToResolve(
        decision.group.group_id,
        expressions(topology),
        context.topics,
        context.principal,
        context.client_host,
    )
    decision.effects.append(Effect(RESOLVE_REGEXES, wanted))
    decision.remember(resolving=True)


# --- the result ------------------------------------------------------------------------------------


def apply_resolution(group: StreamsGroup, result: RegexesResolved, context: Context) -> Outcome:
    """Store the topics that expressions match; bump the epoch if the topics that the group reads changed."""
    decision = Decision(group, context)
    decision.remember(resolving=False)
    topology, wanted = group.topology, expressions(group.topology)
    if topology is None or not wanted:
        return decision.outcome()
    last = {} if decision.soft.resolved is None else decision.soft.resolved.matches
    now = {each: result.matches.get(each, last.get(each)) for each in wanted}
    matches = {each: found for each, found in now.items() if found is not None}
    if result.matches:
        version = OUTDATED if group.is_empty else result.version
        decision.remember(resolved=Resolved(matches, version, context.now_ms))
    if not group.is_empty:
        decision.arm(refresh_key(group.group_id), context.config["group.consumer.regex.refresh.interval.ms"])
        _configure_again(decision, topology)
    return decision.outcome()


def _configure_again(decision: Decision, topology: Topology) -> None:
    before = decision.soft
    decision.remember(hashed_topics=None)
    try:
        configured, is_changed = configure_topology(decision, topology, changed=False)
    except GroupError:  # The next heartbeat is answered with it.
        decision.soft = before
        decision.remember(configured=None)
        return
    if update_validated_epoch(decision, topology, configured) or is_changed:
        decision.bump()


# --- timers ----------------------------------------------------------------------------------------


def refresh_expressions(group: StreamsGroup, context: Context) -> Outcome:
    """Request a resolution when the refresh timer has expired."""
    if group.topology is None or not expressions(group.topology):
        return NOTHING
    decision = Decision(group, context)
    _request_resolution(decision, group.topology)
    return decision.outcome()


def on_group_emptied(decision: Decision) -> None:
    """Stop the refresh timer; the next member uses the last matches until they are resolved again."""
    decision.timers.append(Disarm(refresh_key(decision.group.group_id)))
    last = decision.soft.resolved
    if last is not None:
        decision.remember(resolved=replace(last, version=OUTDATED), hashed_topics=None)


def on_group_loaded(decision: Decision) -> None:
    """Request a resolution when the coordinator has loaded the group, without waiting for a heartbeat."""
    if expressions(decision.group.topology):
        decision.arm(refresh_key(decision.group.group_id), 0)
