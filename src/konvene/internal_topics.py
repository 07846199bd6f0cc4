"""Names of the internal topics: Kafka's coordinator logs and cluster log, and konvene's audit topic.

Every layer may import this module, which imports no other. The rules for topic names are in
`konvene.cluster.names`; the settings with which the broker creates internal topics are in
`konvene.broker.broker`.
"""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
SHARE_STATE_TOPIC = "__share_group_state"
TRANSACTION_TOPIC = "__transaction_state"
AUDIT_TOPIC = "__konvene_audit"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

COORDINATOR_TOPICS = (OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC)
"""Logs of the group, share and transaction coordinators."""

INTERNAL_TOPICS = frozenset({*COORDINATOR_TOPICS, AUDIT_TOPIC})
"""Topics that only the broker writes and that clients may read. No client sees the cluster log."""
