"""What consumer, share and streams groups have in common.

group            members, epochs, and the errors of requests that name a wrong member log              the
records and their replay decision         a decision while it is being made admit, leave     which member
sends a heartbeat; how members leave without one commits          which member may commit and fetch offsets
reconcile        the next step of a member towards its target conversion       groups that change between this
and the classic protocol rebalance_trace  the rebalance in progress, for the audit
"""
