"""BrokerRegistration: one record per start of the node, which advances all leader epochs.

Kafka bumps a partition's leader epoch whenever it elects a leader, so at least once per start of a single
node. Here the starts are counted, and a partition's leader epoch is the number of starts since its topic was
created: one record per start instead of one per partition. If a power failure lost records that a client has
read, the client detects that by the epoch, as with Kafka.
"""

from __future__ import annotations

from konvene.cluster.state import CatalogueState
from konvene.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from konvene.records.metadata import RegisterBrokerRecord
from konvene.shard.contract import Context, Outcome, Reply


def register(state: CatalogueState, request: BrokerRegistrationRequest, context: Context) -> Outcome:
    """Register the broker that started, and reply with its broker epoch, the number of starts so far.

    An incarnation that is registered already gets the epoch that it has.
    """
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
