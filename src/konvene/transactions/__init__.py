"""The transaction coordinator: what it decides for each transactional id. Pure: no clock, no I/O.

`state` has the types, `shard` the tables of requests, timers and records. Each request has a module:
`init_producer_id`, `partitions`, `end_txn`, `views`. `expiry` has the timeouts, `markers` the effects that
the broker carries out.
"""
