"""Unchanged Kafka Streams applications with `group.protocol=streams` (KIP-1071): the broker makes their
internal topics, assigns their tasks and standbys, and sends each instance the others' endpoints.

The harness is that of the folder above, and so is the choice of the broker: `KONVENE_AGAINST=kafka` runs all
this against Apache Kafka, which is how it was written and how it is kept honest. Only the broker's own
settings are different: its bounds on sessions and heartbeats are low, so that a test may kill an instance and
see the end of its session.

An application is one of java/.../Topologies.java. Its instances live together in one JVM
(java/.../StreamsApps.java), each with clients and a process id of its own, but for those that are to be
killed. Guarantees are at-least-once: where instances are closed properly, or killed after their last commit,
each record counts once; where not, no fewer times than once.

| file | theme |
| --- | --- |
| app.py | an application at work: its topics, its instances, what it was given and what it made of it |
| test_topologies.py | what applications can do: no state, counts, joins, several subtopologies |
| test_topics.py | internal topics as the broker makes them; source topics that are missing or wrong |
| test_instances.py | instances and threads come, leave, die and are rolled; standbys; failures |
| test_migration.py | classic applications become streams groups and come back |
| test_user_data.py | user data of classic applications, by Kafka's own code |
| test_queries.py | interactive queries: each instance knows where every key is |
| test_operators.py | the admin client and Kafka's own tools on streams groups |
| at-work.txt, ended.txt | output of Kafka's tools for Kafka, of a running application and an ended one |
| test_restart.py | the broker is killed under an application |
"""
