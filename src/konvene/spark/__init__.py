"""Users' topics as data frames of Spark, without a JAR: `spark.read.format("konvene")`.

Spark finds the source by itself through the package `pyspark_konvene`. The modules that decide (`options`,
`positions`, `ranges`) do so without Spark and without I/O.
"""
