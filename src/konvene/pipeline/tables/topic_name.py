"""Defines `topic_name`: topic names by topic id."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "topic_name",
    "bronze",
    "Topic names by id: from the cluster metadata log, partition directories, offset commits that contain "
    "both, and the share-group metadata.",
    (
        CLUSTER,
        Column("topic_id", pa.string(), "Kafka's text form: 22 characters of URL-safe base64."),
        Column("topic", pa.string(), "The name."),
        Column("partitions", pa.int32(), "Number of partitions, as far as known; else -1."),
    ),
    key=("cluster", "topic_id"),
)
