"""Share groups in the simulated world: share coordinator, share partitions, and a ledger that checks them.

runtime         the share coordinator in virtual time
node            the broker's share partitions, sessions and request handlers, on logs in memory
share_services  the broker's services that share partitions and their handlers use
state_log       the log of the share coordinator
logs            the partitions that share groups read
ledger          owner and acknowledgement of each record, recorded independently of the share partition
recording       share partitions that report every decision to a ledger
invariants      invariants after every event of the share coordinator
admin           requests of administrators
faults          faults, settings and administrator requests that the world draws
settings        broker settings from the options of a run
marathon        a long run of share partitions without members and network
"""
