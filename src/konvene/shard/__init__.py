"""The contract of every coordinator: a shard of state, and four pure functions over it.

    handle(shard, request, context) -> Outcome      what a request decides
    expire(shard, key, context) -> Outcome          what a timer that ran out decides
    replay(shard, record) -> None                   the only place where state changes
    load(shard, context) -> Outcome                 after the log was replayed: the timers to arm

`contract` has the nouns, `causes` the words for why a group rebalanced, `image` what a coordinator may
know of topics, `errors` how a request is refused. Nothing in here or in a core touches a clock, a random
number, a file or a socket.
"""
