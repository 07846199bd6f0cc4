"""What consumer, share and streams groups have in common.

    group             members, epochs, and the errors of requests that name a wrong member
    log               the records of a group, and their replay
    decision          a decision while it is being made: it collects records, replies and timers
    admit, leave      which member sends a heartbeat; how members leave without one
    commits           which member may commit and fetch offsets
    reconcile         the next step of a member's assignment towards its target
    classic_member    what is kept of a member that uses the classic protocol
    conversion        groups that change between this and the classic protocol
    rebalance_trace   the rebalance in progress, for the audit

The packages `consumer`, `share` and `streams` extend them, each for one type of group.
"""
