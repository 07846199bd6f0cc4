"""Turns the logs of coordinators into tables and answers: why a group rebalanced, and what it cost.

Everything here works on Arrow batches, in one process or in as many as Spark has. Nothing of it is imported
by the broker, and nothing of Spark before it is needed: `pip install konvene[spark]`.
"""
