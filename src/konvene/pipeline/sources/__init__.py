"""Where logs come from: files that lie there, a broker that is asked, and both as a data source of Spark's.

Only `konvene_log` imports Spark, and it is imported by nobody but `register` and `pyspark_konvene`.
"""
