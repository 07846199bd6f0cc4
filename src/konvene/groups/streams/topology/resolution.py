"""When it is found out what the expressions of a streams group's topology match, and what follows from it.

The work is that of consumer groups (`consumer.work`), for all expressions of the topology together:

    asked for                                                       not before
    as soon as a topology has an expression of which nothing is known
    when topics were made since, for an expression may match them   ten seconds after the last answer
    every group.consumer.regex.refresh.interval.ms, since rights
    to see a topic may have changed

A timer counts the last two, so a heartbeat of a settled member costs what it does without expressions.

What came is kept beside the log: Kafka 4.4 has no record for it. So a coordinator that starts anew does not
know what its groups read. It asks at once, and until the answer is there such a group stays what its records
say: a group that was ready is ready, everybody keeps what they have and goes on towards the last target, no
new target is computed, and the epoch moves only for what members do. The group's hash is of what was matched;
where the answer makes the same hash nothing has happened, and where topics have changed meanwhile the epoch
moves, once. A group that was not ready has no tasks to lose, and stays without.

A topic that is deleted is read no more as soon as that is seen: for that nobody has to be asked. Of a group
that nobody is in it is kept what was matched last, for those who ask what it reads to move its offsets.

Where the answer fails, the last one stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from konvene.groups.consumer.subscriptions import REFRESH_PAUSE_MS, hash_of
from konvene.groups.consumer.work import RESOLVE_REGEXES, RegexesResolved, RegexesToResolve
from konvene.groups.streams.decision import Decision, refresh_key
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.configure import UNKNOWN, Configured, configure
from konvene.groups.streams.topology.expressions import Matches, Resolved, expressions, known, named
from konvene.groups.streams.topology.topology import Topology
from konvene.shard import causes
from konvene.shard.contract import NOTHING, Context, Disarm, Effect, Outcome
from konvene.shard.errors import GroupError

NEVER = -1
"""The version of topics before any were made."""

# --- with a heartbeat ------------------------------------------------------------------------------


def hold_against_topics(step: Decision, topology: Topology, *, changed: bool) -> tuple[Configured, bool]:
    """The topology held against its topics, anew if one of them is not what it was; whether the epoch has to
    move for it. `UNKNOWN` as long as nobody knows what its expressions match.

    `changed`: the epoch moves anyway. Raises `GroupError` as `configure` does."""
    context, before = step.context, step.soft.configured
    replaced = topology is not step.group.topology
    if before is not None and step.soft.seen is context.topics and not replaced:
        return before, False
    if expressions(step.group.topology) and not expressions(topology):
        step.timers.append(Disarm(refresh_key(step.group.group_id)))
        step.remember(resolved=None)
    matches = _matches(step, topology)
    if matches is None:
        if before is not None:
            step.remember(configured=None)
        return UNKNOWN, False
    reads = named(topology, matches)
    step.metadata_hash = hash_of(reads.required_topics, context)
    moved = step.metadata_hash != step.group.metadata_hash
    is_other = before is not None and before.topology != reads
    found = before
    if found is None or moved or replaced or is_other:
        by_name = context.topics.by_name
        counts = {name: by_name[name].partitions for name in reads.required_topics if name in by_name}
        found = configure(topology, counts, context.config["konvene.streams.mode"], matches)
    step.remember(seen=context.topics, configured=found)
    if not replaced and (is_other or (before is None and expressions(topology))):
        step.remember(endpoint_epoch=step.soft.endpoint_epoch + 1)  # Who asked so far was told of none.
    moved |= is_other and not replaced
    if moved and not changed and not replaced:
        _say_why(step, before, found)
    return found, moved


def see_whether_ready(step: Decision, topology: Topology, configured: Configured) -> bool:
    """Note for which topology the group is ready; whether that is news. What is not known is as it was."""
    before = step.group.validated_topology_epoch
    if configured.is_known:
        step.validated_topology_epoch = topology.epoch if configured.is_ready else -1
    elif topology is not step.group.topology:
        step.validated_topology_epoch = -1
    if step.validated_topology_epoch == before:
        return False
    if configured.is_known:
        step.cause(causes.TOPOLOGY_READY if configured.is_ready else causes.TOPOLOGY_NOT_READY)
    return True


def _say_why(step: Decision, before: Configured | None, found: Configured) -> None:
    """Expressions match what they did not, or it is about topics that were read before."""
    if not expressions(step.topology) or found.topology is None:
        step.cause(causes.TOPIC_METADATA_CHANGED)
        return
    read = before.topology.source_topics if before is not None and before.topology is not None else ()
    gained = [topic for topic in found.topology.source_topics if topic not in read]
    one = gained[0] if len(gained) == 1 else None
    step.cause(causes.REGEX_REFRESHED if gained else causes.TOPIC_METADATA_CHANGED, topic=one)


def _matches(step: Decision, topology: Topology) -> Matches | None:
    """What the expressions match, of the topics that there are; None while that is not known of one.

    Has it found out if it is time."""
    resolved, topics = step.soft.resolved, step.context.topics
    matches = known(topology, resolved, topics)
    if matches is None:
        _ask(step, topology)
    elif resolved is not None and resolved.version < topics.version and matches:
        paused_ms = resolved.timestamp_ms + REFRESH_PAUSE_MS + 1 - step.context.now_ms
        if 0 < paused_ms <= REFRESH_PAUSE_MS + 1:  # Else it is over, or a clock was set back.
            step.arm(refresh_key(step.group.group_id), paused_ms)
        else:
            _ask(step, topology)
    return matches


def _ask(step: Decision, topology: Topology) -> None:
    if step.soft.resolving:
        return
    context = step.context
    wanted = RegexesToResolve(step.group.group_id, expressions(topology), context.topics, context.principal)
    step.effects.append(Effect(RESOLVE_REGEXES, wanted))
    step.remember(resolving=True)


# --- what comes of it ------------------------------------------------------------------------------


def resolved(group: StreamsGroup, answer: RegexesResolved, context: Context) -> Outcome:
    """It was found what the expressions match. The epoch moves if that is news."""
    step = Decision(group, context)
    step.remember(resolving=False)
    topology, wanted = group.topology, expressions(group.topology)
    if topology is None or not wanted:
        return step.outcome()
    last = {} if step.soft.resolved is None else step.soft.resolved.matches
    now = {each: answer.matches.get(each, last.get(each)) for each in wanted}
    matches = {each: found for each, found in now.items() if found is not None}
    if answer.matches:
        version = NEVER if group.is_empty else answer.version
        step.remember(resolved=Resolved(matches, version, context.now_ms))
    if not group.is_empty:
        step.arm(refresh_key(group.group_id), context.config["group.consumer.regex.refresh.interval.ms"])
        _hold_again(step, topology)
    return step.outcome()


def _hold_again(step: Decision, topology: Topology) -> None:
    before = step.soft
    step.remember(seen=None)
    try:
        configured, moved = hold_against_topics(step, topology, changed=False)
    except GroupError:  # The next member that is heard of is told.
        step.soft = before
        step.remember(configured=None)
        return
    if see_whether_ready(step, topology, configured) or moved:
        step.bump()


# --- timers ----------------------------------------------------------------------------------------


def refresh_due(group: Any, context: Context) -> Outcome:
    """It is time to find out anew."""
    if not isinstance(group, StreamsGroup) or group.topology is None or not expressions(group.topology):
        return NOTHING
    step = Decision(group, context)
    _ask(step, group.topology)
    return step.outcome()


def emptied(step: Decision) -> None:
    """Nobody is in the group any more. Who joins goes on with what was matched last, and has it looked at."""
    step.timers.append(Disarm(refresh_key(step.group.group_id)))
    last = step.soft.resolved
    if last is not None:
        step.remember(resolved=replace(last, version=NEVER), seen=None)


def loaded(step: Decision) -> None:
    """After a restart of the coordinator nobody knows, and it is found out without waiting for a member."""
    if expressions(step.group.topology):
        step.arm(refresh_key(step.group.group_id), 0)
