"""The contract of every coordinator: a shard of state, and four pure functions over it.

    handle(shard, request, context) -> Outcome      decide a request
    expire(shard, key, context) -> Outcome          decide the expiry of a timer
    replay(shard, record) -> None                   apply a record: the only place where state changes
    load(shard, context) -> Outcome                 after the log was replayed: the timers to arm

`contract` defines the types, `causes` the vocabulary of rebalance causes, `image` the topics that a
coordinator may read, `errors` how a request is rejected. Nothing in this package or in a core reads a clock
or a random number, or touches a file or a socket."""
