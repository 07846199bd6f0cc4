"""Metrics of the broker, and the HTTP server that Prometheus scrapes and that answers health checks.

    tables             the tables of metrics: name, help sentence, labels, and where the values come from
    group_types        states, epochs and waiting members of each type of group
    meter              counters that the broker increments while it works
    instruments        histograms, durations, rates, and the bounded sets of group and topic labels
    group_shard        a group shard that reports its decisions to the meter
    share_state_shard  a share state shard that reports its writes and load time to the meter
    placement_costs    cached placement costs of streams groups' target assignments
    warmups            warm-up tasks of streams groups and their lag
    group_gauges       gauges of all groups, computed for each scrape
    group_lags         lag of groups in records and in seconds, computed for each scrape
    exposition         the metrics as text, by prometheus-client
    server             the HTTP server
    reference          renders docs/reference/metrics.md

If `konvene.metrics.port` is -1 the broker has no meter and uses shards without metrics; the only cost is a
comparison with None for each response. The simulator has no meter either.
"""
