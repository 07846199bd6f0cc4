"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, with dynamic and static members (KIP-345).

group                          a group, its members and its states
decision                       the changes and replies of one request, and the steps that requests share:
                               start a rebalance, complete the join, propagate the assignment
join, sync, heartbeat, leave   the requests
expiry                         the timers
log                            the record that restores a group after a restart
subscriptions                  the metadata and assignments of members of protocol type "consumer"
"""
