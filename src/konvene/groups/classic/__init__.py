"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, with dynamic and static members (KIP-345).

`group` has the nouns and the states, `decision` a decision while it is being made and the moves that requests
share (start a rebalance, complete the join, hand out the assignment); `join`, `sync`, `heartbeat` and
`leave` are the requests, `expiry` the timers, `log` the record in which a group survives a restart.
"""
