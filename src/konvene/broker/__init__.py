"""The broker: the only home of asyncio besides the client.

app          starts and stops               server, connection   speak frames
broker       introduces the parts           frames, router       what is served, and where
coordinator  runs any shard on a log        handlers/            one file per API
timers       tells it when time is up       groups               the group coordinators
partitions   the logs and who waits         audit                why groups rebalanced
"""
