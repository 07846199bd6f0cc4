"""All tables of the pipeline except those of `silver`, which are derived from the declarations of records."""

from konvene.pipeline.tables import (
    audit_event,
    coordinator_record,
    group_health,
    lag,
    log_end,
    log_span,
    ownership,
    pipeline_run,
    quarantine,
    rebalance,
    rebalance_member,
    share_delivery,
    share_progress,
    topic_name,
    transactional_commit,
    unavailability,
)
from konvene.pipeline.tables.table import Column, Table

__all__ = ["TABLES", "Column", "Table"]

_ALL = (
    coordinator_record, audit_event, log_end, log_span, topic_name, quarantine,
    rebalance, rebalance_member, ownership, unavailability, lag, transactional_commit,
    share_delivery, share_progress, group_health, pipeline_run,
)  # fmt: skip
TABLES: dict[str, Table] = {module.TABLE.name: module.TABLE for module in _ALL}
