"""Live page of a cluster's groups and topics, for any Kafka cluster.

    rebalances   rebalances and ownership of all groups, reduced from coordinators' records as they arrive;
                 pure
    commits      the offsets that groups have committed, from the same records; pure
    tail         fetches the coordinators' logs and passes records to the two
    watch        what the views read: the logs above, and descriptions through the Admin API, each cached
                 briefly
    views/       one module per view: its sections, built from the watch
    live         sends a view to its viewers: whole first, then what changes
    messages     the message browser
    actions      changes that a user may request
    security     which requests are answered: host, token, origin, headers
    app          the web application: routes
    server       serves the application with uvicorn
    static/      the page: HTML, style and scripts, without a build step

The console is a client: it reads `__consumer_offsets` and `__konvene_audit` with Fetch and everything else
with the Admin API. Nothing is stored. Whatever a cluster does not report is shown as unknown."""
