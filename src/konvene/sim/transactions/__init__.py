"""Transactions in a simulated world: a coordinator, the logs of an output topic, and what comes of it all.

shell       the broker's coordinator on the transactions' core, watched
logs        partitions of the output topic, with the log layer's own memory of producers
node        what stands between clients, coordinators and logs: it enlists, verifies and carries markers
ledger      who wrote what in which transaction, what was decided, and what came of it
invariants    what holds after every event of the transaction coordinator
"""
