"""Groups: what the coordinator decides for each kind of them, and what can be told of them afterwards.

One folder per kind (`classic`, …) and one for their committed `offsets`; `views` is what all ways of looking
show, `history` why a group rebalanced. Pure: state and a request in, records and replies out.
"""
