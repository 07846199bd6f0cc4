"""Declarations of the records in Kafka's internal topics, and in konvene's audit log.

`GROUP_RECORDS`, `SHARE_STATE_RECORDS`, `TRANSACTION_RECORDS` and `METADATA_RECORDS` map record types to
declarations, the first three also to the version in which Kafka 4.4 writes a value. `coordinator` encodes and
decodes coordinator records: their type precedes the key, their version the value. `cluster_log` does the
same for metadata records.
"""
