"""Transactions in the simulated world: the transaction coordinator, the logs of an output topic, and a
ledger.

runtime     the transaction coordinator in virtual time
logs        partitions of the output topic, with the producer state of the log layer
node        partition verification, appends, and the delivery of transaction markers
producer    a transactional producer of a simulated client
ledger      records and result of each transaction, recorded independently of the coordinator
invariants  invariants after every event of the transaction coordinator
"""
