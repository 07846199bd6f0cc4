"""What topics are called whose ids the records of coordinators name."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "topic_name",
    "bronze",
    "Names of topics by their ids: from the catalogue's log, the folders of partitions, offset commits that "
    "say both, and what share groups say of the topics whose state they keep.",
    (
        CLUSTER,
        Column("topic_id", pa.string(), "Kafka's text form: 22 letters of URL-safe base64."),
        Column("topic", pa.string(), "The name."),
        Column("partitions", pa.int32(), "How many partitions it has, as far as that was seen; else -1."),
    ),
    key=("cluster", "topic_id"),
)
