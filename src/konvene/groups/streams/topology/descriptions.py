"""What the topology of an application looks like, node by node (KIP-1331), for those who describe a group.

Kafka hands descriptions to a plugin, and 4.4 ships none; without one it refuses them. Here a coordinator
may keep them in memory (`konvene.streams.topology.description.enable`, off as in Kafka): a member is asked
for the description of a topology that has none, and after a restart another one is. Nothing is written to
the log.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from konvene.errors import Errors
from konvene.groups.modern.group import known_member
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import NO_EPOCH, StreamsGroup
from konvene.groups.streams.leave import streams_group
from konvene.messages import streams_group_describe as described
from konvene.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescriptionNode,
)
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import GroupError

NOT_REQUESTED, NOT_STORED, AVAILABLE = 0, 1, 3
"""What is told of a description, as Kafka numbers it."""

SOURCE, PROCESSOR, SINK = 1, 2, 3
"""Types of nodes."""

ASK_AGAIN_MS = 30_000
"""A member that was asked has so long to answer before another one is."""

FIRST_VERSION = 1
"""Of heartbeats and describes that know of descriptions."""


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a topology at some epoch; None: it was asked for."""

    epoch: int = NO_EPOCH
    told: described.TopologyDescription | None = None
    asked_ms: int = 0


NONE_YET = Description()


def ask(step: Decision, topology_epoch: int, member_epoch: int) -> bool:
    """Whether the member at hand is to send the description of the group's topology."""
    context = step.context
    if not context.config["konvene.streams.topology.description.enable"] or step.topology is None:
        return False
    known: Description = step.soft.description or NONE_YET
    if context.api_version < FIRST_VERSION or member_epoch < 0 or topology_epoch < step.topology.epoch:
        return False
    if known.epoch == topology_epoch and (known.told or context.now_ms < known.asked_ms + ASK_AGAIN_MS):
        return False
    step.remember(description=Description(topology_epoch, None, context.now_ms))
    return True


def update(
    groups: MutableMapping[str, Any], request: StreamsGroupTopologyDescriptionUpdateRequest, context: Context
) -> Outcome:
    """Decide a StreamsGroupTopologyDescriptionUpdate. A refusal is answered with Kafka's words."""
    try:
        step = _taken(groups, request, context)
    except GroupError as refused:
        answer = StreamsGroupTopologyDescriptionUpdateResponse(
            error_code=refused.error, error_message=refused.message
        )
        return Outcome((Reply(context.waiter, answer),))
    step.reply(context.waiter, StreamsGroupTopologyDescriptionUpdateResponse())
    return step.outcome()


def _taken(
    groups: MutableMapping[str, Any], request: StreamsGroupTopologyDescriptionUpdateRequest, context: Context
) -> Decision:
    if not context.config["konvene.streams.topology.description.enable"]:
        raise GroupError(
            Errors.UNSUPPORTED_VERSION,
            "The broker has no streams group topology description plugin configured.",
        )
    for name, text in (("MemberId", request.member_id), ("GroupId", request.group_id)):
        if not text.strip():
            raise GroupError(Errors.INVALID_REQUEST, f"{name} can't be empty.")
    group = streams_group(groups, request.group_id)
    known_member(group, request.member_id)
    if request.topology_epoch != group.topology_epoch:
        raise GroupError(
            Errors.INVALID_REQUEST,
            f"Topology epoch {request.topology_epoch} does not match the group's current topology epoch "
            f"{group.topology_epoch}.",
        )
    step = Decision(group, context)
    step.remember(description=Description(request.topology_epoch, _read(request), context.now_ms))
    return step


def of(group: StreamsGroup) -> tuple[described.TopologyDescription | None, int]:
    """What is known of the group's topology, and what to say of that."""
    known: Description = group.soft.description or NONE_YET
    if known.told is None or known.epoch != group.topology_epoch:
        return None, NOT_STORED
    return known.told, AVAILABLE


def _read(request: StreamsGroupTopologyDescriptionUpdateRequest) -> described.TopologyDescription:
    """Raises INVALID_REQUEST for what is no description."""
    told = request.topology_description
    stores = []
    for store in told.global_stores:
        if store.source.node_type != SOURCE or store.processor.node_type != PROCESSOR:
            raise GroupError(
                Errors.INVALID_REQUEST, "Global store must be composed of a source and a processor node."
            )
        stores.append(
            described.TopologyDescriptionGlobalStore(
                source=_node(store.source), processor=_node(store.processor)
            )
        )
    return described.TopologyDescription(
        subtopologies=tuple(
            described.TopologyDescriptionSubtopology(
                subtopology_id=each.subtopology_id, nodes=tuple(map(_node, each.nodes))
            )
            for each in told.subtopologies
        ),
        global_stores=tuple(stores),
    )


def _node(told: TopologyDescriptionNode) -> described.TopologyDescriptionNode:
    """Of each type what belongs to it, each name once."""
    kind = told.node_type
    if kind not in (SOURCE, PROCESSOR, SINK):
        raise GroupError(Errors.INVALID_REQUEST, f"Unknown topology node type: {kind}")
    return described.TopologyDescriptionNode(
        name=told.name,
        node_type=kind,
        source_topics=tuple(dict.fromkeys(told.source_topics)) if kind == SOURCE else (),
        sink_topic=told.sink_topic if kind == SINK else None,
        stores=tuple(dict.fromkeys(told.stores)) if kind == PROCESSOR else (),
        successors=tuple(dict.fromkeys(told.successors)),
    )
