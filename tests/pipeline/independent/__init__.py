"""An independent reader of a group coordinator's log, which proves the rows of the reducer.

Its input are records as Kafka's own decoder prints them. It shares no code with `konvene.groups` or the
reducer, and works differently: it keeps who owns what, takes snapshots where a rebalance ends, and compares
them. It is slow, and knows only complete logs.

Not compared, and why:

    rows with missing evidence            their records are not in the log
    start and unavailability of classic   only the audit has them, which is no record of Kafka's
    generations
    streams groups that are converted     their units change between tasks and partitions of source topics
    Kafka Connect                         `test_connect` has vectors of its own classes
"""
