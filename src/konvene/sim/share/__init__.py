"""Share groups in a simulated world: the share coordinator, who delivers, and the books beside them.

shell       the broker's coordinator on the core of share state, watched
node        who delivers: the broker's own share partitions, sessions and handlers, on logs that are lists
logs        the partitions that are read
ledger      who has which record, what was told of it, and what must never come again
invariants    what holds after every event of the share coordinator
"""
