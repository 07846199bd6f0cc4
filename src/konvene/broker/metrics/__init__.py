"""What the broker counts, and how it is served to Prometheus.

    rows      the table: every metric, its sentence, and where its value comes from
    kinds     what each kind of group has to tell
    meter     what is counted while the broker works: the one place that counts
    tallies   counts, histograms, rates, and the bounded set of group labels
    shard     a group shard that tells the meter what it decides
    census    the groups, looked at when somebody asks
    page      the table as text, by prometheus-client
    server    HTTP, as much of it as a scrape needs
    reference docs/reference/metrics.md

Where `konvene.metrics.port` is -1 the broker has no meter, its shards are the plain ones, and all that is
left of this is a comparison with None where an answer leaves. The simulator has none either.
"""
