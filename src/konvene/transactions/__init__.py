"""The transaction coordinator: what it decides for each transactional id. Pure.

`state` has the types, `shard` the tables, and each request a module: `init_producer_id`, `partitions`,
`end_txn`, `views`. `expiry` has the timeouts, `markers` the work for the shell."""
