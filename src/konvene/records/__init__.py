"""Declarations of the records in Kafka's internal logs, and of konvene's audit log.

`GROUP_RECORDS`, `SHARE_STATE_RECORDS`, `TRANSACTION_RECORDS` and `METADATA_RECORDS` map record types to
declarations. `coordinator` reads and writes the envelope of coordinator records: the type before the key, the
version before the value. Each table also has the version in which a value is written, as Kafka 4.4 writes it.
"""
