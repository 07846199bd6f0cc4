"""The cluster's catalogue: topics, ids, partitions, configs, features, producer ids.

The log is `__cluster_metadata`, in Kafka's own metadata records. A single node is its own controller, so the
catalogue is a shard like the coordinators: requests decide, records replay.
"""
