"""The node's registration: once at each start, and with it a new epoch of leadership.

Kafka raises a partition's leader epoch whenever it gets a leader, and so at least once for each start of a
single node. Here the starts are counted, and a partition's epoch is the number of starts since its topic was
made: one record at each start instead of one for each partition. A client that read records which a power cut
took back finds out by the epoch, as with Kafka.
"""

from __future__ import annotations

from konvene.cluster.state import CatalogueState
from konvene.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from konvene.records.metadata import RegisterBrokerRecord
from konvene.shard.contract import Context, Outcome, Reply


def register(state: CatalogueState, request: BrokerRegistrationRequest, context: Context) -> Outcome:
    """Register a start. The same incarnation is registered once."""
    known = state.broker
    if known is not None and known.incarnation_id == request.incarnation_id:
        response = BrokerRegistrationResponse(broker_epoch=known.broker_epoch)
        return Outcome((Reply(context.waiter, response),))
    epoch = state.starts + 1
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        rack=request.rack,
        fenced=False,
    )
    return Outcome((Reply(context.waiter, BrokerRegistrationResponse(broker_epoch=epoch)),), (record,))
