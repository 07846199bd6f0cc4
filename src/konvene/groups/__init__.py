"""The group coordinator's core: state and a request in, records and replies out, without I/O.

Each type of group has a package (`classic`, `consumer`, `share`, `streams`) and an entry in `group_type`;
`modern` holds what the last three have in common, `offsets` the committed offsets of all groups. `shard` is
one partition of `__consumer_offsets`, `history` infers from its log why groups rebalanced, `migration` is the
dry run of a protocol migration.
"""
