"""Share groups in the simulated world: share coordinator, share partitions, and a ledger that checks them.

runtime         the broker's coordinator on the shard of share state, observed
node            the broker's share partitions, sessions and handlers, on logs in memory
share_services  the services of the broker that they use
logs            the partitions that share groups read
ledger          owner and acknowledgement of each record, recorded independently of the share partition
recording       share partitions that report every decision to a ledger
invariants      invariants after every event of the share coordinator
admin           requests of administrators
marathon        a long run of share partitions without members and network
"""
