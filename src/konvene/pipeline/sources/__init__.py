"""Sources of logs: files, live brokers over Fetch, and both as a Spark data source.

Only `konvene_log` imports Spark; only `register` and `pyspark_konvene_log` import it.
"""
