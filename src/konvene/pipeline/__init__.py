"""Turns the logs of coordinators into tables and explanations: why a group rebalanced, and what it cost.

Everything here works on Arrow batches, in one process, in several, or on Spark. The broker imports none of
it, and Spark is imported only when needed: `pip install konvene[spark]`.
"""
