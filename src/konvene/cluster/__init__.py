"""The cluster's metadata (its catalogue): topics, configs, feature levels, producer ids, the broker.

Its log is `__cluster_metadata`, in Kafka's own metadata records. A single node is its own controller, so the
catalogue is a shard like the group coordinators: a request is decided to a reply and records, and only the
replay of records changes the state.
"""
