"""All configurations of a broker: Kafka's 379, the few that Kafka defines elsewhere, and konvene's own.

Kafka ignores unknown names; konvene rejects them, because they are nearly always typing errors. Therefore the
other names that Kafka's files may contain are listed too: removed names (`REMOVED`), configurations of one
listener (`LISTENER`), and those passed to Java plugins (`PLUGIN_PREFIXES`). They are accepted with a notice.
"""

from __future__ import annotations

from typing import Final

from konvene.configs.broker.cluster import CLUSTER_ROWS
from konvene.configs.broker.groups import GROUP_ROWS
from konvene.configs.broker.konvene import KONVENE_ROWS
from konvene.configs.broker.log import LOG_ROWS
from konvene.configs.broker.maintenance import UPKEEP_ROWS
from konvene.configs.broker.metrics import METRICS_ROWS
from konvene.configs.broker.node import NODE_ROWS
from konvene.configs.broker.security import SECURITY_ROWS
from konvene.configs.broker.transactions import TRANSACTION_ROWS
from konvene.configs.setting import Setting

__all__ = [
    "BROKER",
    "BROKER_TABLES",
    "CLUSTER_WIDE_OF_LISTENER",
    "LISTENER",
    "PLUGIN_PREFIXES",
    "REMOVED",
    "SINGLE_COPY",
]

# In the order of the reference page.
BROKER_TABLES: Final[dict[str, tuple[Setting, ...]]] = {
    "Node": NODE_ROWS,
    "Groups": GROUP_ROWS,
    "Transactions": TRANSACTION_ROWS,
    "Log": LOG_ROWS,
    "Security": SECURITY_ROWS,
    "Cluster": CLUSTER_ROWS,
    "Upkeep": UPKEEP_ROWS,
    "konvene": KONVENE_ROWS,
    "Metrics": METRICS_ROWS,
}

BROKER: Final[dict[str, Setting]] = {row.name: row for rows in BROKER_TABLES.values() for row in rows}

# Numbers of replicas: one node has one, whatever a file made for a cluster contains.
SINGLE_COPY: Final = (
    "default.replication.factor",
    "min.insync.replicas",
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
)

# What settings of one listener start with: `listener.name.<listener>.[<mechanism>.]<setting>`.
LISTENER: Final = "listener.name."

# Settings of one listener that can be altered for all brokers at once; others for one broker only.
CLUSTER_WIDE_OF_LISTENER: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")

# Settings that Kafka hands to a plugin without knowing them.
PLUGIN_PREFIXES: Final = ("client.quota.callback.", "config.providers.", "rlmm.config.", "rsm.config.")

# Names that older releases of Kafka knew and the present one does not.
REMOVED: Final = frozenset(
    {
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "group.coordinator.new.enable",
        "group.share.enable",
        "inter.broker.protocol.version",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "password.encoder.cipher.algorithm",
        "password.encoder.iterations",
        "password.encoder.key.length",
        "password.encoder.keyfactory.algorithm",
        "password.encoder.old.secret",
        "password.encoder.secret",
        "reserved.broker.max.id",
        "zookeeper.clientCnxnSocket",
        "zookeeper.connect",
        "zookeeper.connection.timeout.ms",
        "zookeeper.max.in.flight.requests",
        "zookeeper.metadata.migration.enable",
        "zookeeper.metadata.migration.min.batch.size",
        "zookeeper.session.timeout.ms",
        "zookeeper.set.acl",
        "zookeeper.ssl.cipher.suites",
        "zookeeper.ssl.client.enable",
        "zookeeper.ssl.crl.enable",
        "zookeeper.ssl.enabled.protocols",
        "zookeeper.ssl.endpoint.identification.algorithm",
        "zookeeper.ssl.keystore.location",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.keystore.type",
        "zookeeper.ssl.ocsp.enable",
        "zookeeper.ssl.protocol",
        "zookeeper.ssl.truststore.location",
        "zookeeper.ssl.truststore.password",
        "zookeeper.ssl.truststore.type",
    }
)
