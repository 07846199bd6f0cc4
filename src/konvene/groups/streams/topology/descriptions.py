"""Descriptions of applications' topologies, with all their nodes (KIP-1331), for StreamsGroupDescribe.

Kafka hands descriptions to a plugin, and 4.4 ships none; without one it rejects them. Here a coordinator can
keep them in memory (`konvene.streams.topology.description.enable`, off as in Kafka): it requests the
description of a topology from one member, and requests it again after a restart. Nothing is written to the
log."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.errors import Errors
from konvene.groups.modern.group import get_or_throw_group, get_or_throw_member
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import Description, StreamsGroup
from konvene.messages import streams_group_describe as described
from konvene.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescriptionNode,
)
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import GroupError

NOT_REQUESTED, NOT_STORED, AVAILABLE = 0, 1, 3
"""Status of a description in StreamsGroupDescribe, as Kafka numbers it."""

SOURCE, PROCESSOR, SINK = 1, 2, 3
"""Node types."""

REQUEST_RETRY_MS = 30_000
"""Time that a member has to send a requested description before another member is requested to."""

FIRST_VERSION = 1
"""First version of StreamsGroupHeartbeat and StreamsGroupDescribe with descriptions."""


NONE_YET = Description()


def request_description(decision: Decision, topology_epoch: int, member_epoch: int) -> bool:
    """Return whether to request the topology's description from this member; if so, record the request."""
    context = decision.context
    if not context.config["konvene.streams.topology.description.enable"] or decision.topology is None:
        return False
    known = decision.soft.description or NONE_YET
    if context.api_version < FIRST_VERSION or member_epoch < 0 or topology_epoch < decision.topology.epoch:
        return False
    is_pending = context.now_ms < known.requested_ms + REQUEST_RETRY_MS
    if known.epoch == topology_epoch and (known.content or is_pending):
        return False
    decision.remember(description=Description(topology_epoch, None, context.now_ms))
    return True


def update(
    groups: Mapping[str, object], request: StreamsGroupTopologyDescriptionUpdateRequest, context: Context
) -> Outcome:
    """Keep the description that a StreamsGroupTopologyDescriptionUpdate request contains, if it is valid."""
    try:
        decision = _store(groups, request, context)
    except GroupError as refused:
        response = StreamsGroupTopologyDescriptionUpdateResponse(
            error_code=refused.error, error_message=refused.message
        )
        return Outcome((Reply(context.waiter, response),))
    decision.reply(context.waiter, StreamsGroupTopologyDescriptionUpdateResponse())
    return decision.outcome()


def _store(
    groups: Mapping[str, object], request: StreamsGroupTopologyDescriptionUpdateRequest, context: Context
) -> Decision:
    if not context.config["konvene.streams.topology.description.enable"]:
        raise GroupError(
            Errors.UNSUPPORTED_VERSION,
            "The broker has no streams group topology description plugin configured.",
        )
    for name, text in (("MemberId", request.member_id), ("GroupId", request.group_id)):
        if not text.strip():
            raise GroupError(Errors.INVALID_REQUEST, f"{name} can't be empty.")
    group = get_or_throw_group(groups, request.group_id, StreamsGroup)
    get_or_throw_member(group, request.member_id)
    if request.topology_epoch != group.topology_epoch:
        raise GroupError(
            Errors.INVALID_REQUEST,
            f"Topology epoch {request.topology_epoch} does not match the group's current topology epoch "
            f"{group.topology_epoch}.",
        )
    decision = Decision(group, context)
    decision.remember(description=Description(request.topology_epoch, _description(request), context.now_ms))
    return decision


def current_description(group: StreamsGroup) -> tuple[described.TopologyDescription | None, int]:
    """Return the description of the group's topology, None if it is not known, and its status code."""
    known = group.soft.description or NONE_YET
    if known.content is None or known.epoch != group.topology_epoch:
        return None, NOT_STORED
    return known.content, AVAILABLE


def _description(request: StreamsGroupTopologyDescriptionUpdateRequest) -> described.TopologyDescription:
    """Return the description in the request as StreamsGroupDescribe returns it. Raises INVALID_REQUEST."""
    received = request.topology_description
    stores = []
    for store in received.global_stores:
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
            for each in received.subtopologies
        ),
        global_stores=tuple(stores),
    )


def _node(node: TopologyDescriptionNode) -> described.TopologyDescriptionNode:
    """Return a node of the description, with only the fields of its type and without duplicate names."""
    kind = node.node_type
    if kind not in (SOURCE, PROCESSOR, SINK):
        raise GroupError(Errors.INVALID_REQUEST, f"Unknown topology node type: {kind}")
    return described.TopologyDescriptionNode(
        name=node.name,
        node_type=kind,
        source_topics=tuple(dict.fromkeys(node.source_topics)) if kind == SOURCE else (),
        sink_topic=node.sink_topic if kind == SINK else None,
        stores=tuple(dict.fromkeys(node.stores)) if kind == PROCESSOR else (),
        successors=tuple(dict.fromkeys(node.successors)),
    )
