"""What `konvene explain follow` reports to monitoring systems: metrics and alerts.

    current    the groups as they are now: members, lag, the rebalance in progress, recent rebalances
    metrics    the metrics of a follower for Prometheus, by prometheus-client
    alerts     which alerts apply: a function of the groups and the time
    firing     which of them are new or have ended, kept across restarts
    delivery   webhooks and commands: time limits, retries, one thread for each target

Reading the tables and delivering alerts are apart from the rules, which are pure.
"""
