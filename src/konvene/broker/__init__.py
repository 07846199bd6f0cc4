"""The broker: one node that is its whole cluster, on one asyncio event loop.

app           `konvene serve`: options, start, stop
broker        composition root: makes and connects the services
catalogue     topics, settings and features of the cluster
net           connections, frames, routing, response cache, heartbeat purgatory, fetch sessions
handlers      one module per API
groups        group coordinators and the audit of rebalances
shares        share partitions and share coordinators
transactions  transaction coordinators
storage       partitions and their logs, cleaner, archive, retention
metrics       metrics and their HTTP server
"""
