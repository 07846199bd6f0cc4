"""An independent reader of a group coordinator's log, which proves the rows of the reducer.

Its input are records as Kafka's own decoder prints them. It shares no code with `konvene.groups` or the
reducer, and works differently: it keeps who owns what, takes snapshots where a rebalance ends, and compares
them. It is slow, and knows only complete logs.
"""
