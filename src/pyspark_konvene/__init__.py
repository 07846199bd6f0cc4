"""Where Spark looks for data sources by itself: packages whose names begin with `pyspark_`."""
