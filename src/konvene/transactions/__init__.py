"""Transactions: what the coordinator decides for each transactional id.

`state` has the nouns, `shard` the tables, and each request a file: `init`, `partitions`, `end`, `views`.
`expiry` is what time does, `markers` what the shell is asked for. Pure: state and a request in, records and
replies out.
"""
