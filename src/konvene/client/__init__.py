"""A client of any Kafka cluster: connections, metadata, administration, producing, consuming in a group.

    async with Cluster("localhost:9092") as cluster:
        groups = await Admin(cluster).list_groups()

`connection` is one broker, `cluster` all of them; `admin`, `producer`, `member` and `consumer` are built on
`cluster` alone. Everything is asyncio, takes its time from the running loop and keeps no global state.
Used by the CLI, the tests, the simulator and the pipeline.
"""
