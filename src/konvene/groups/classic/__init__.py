"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, with dynamic and static members (KIP-345).

`group` has the group, its members and its states; `decision` a decision while it is being made, with the
steps that requests share (start a rebalance, complete the join, propagate the assignment). `join`, `sync`,
`heartbeat` and `leave` are the requests, `expiry` the timers, `log` the record that restores a group after a
restart, and `subscriptions` the metadata of members of protocol type "consumer".
"""
