"""Build with Maven everything that tests here need: `python -m tests.against.build`.

This is optional: tests build what they need themselves. Building beforehand spares parallel tests waiting for
one another. A failed build is reported here and does not stop the others.
"""

import sys
from collections.abc import Callable
from functools import partial

from .brokers import Unavailable, kafka_archive, kafka_jars, kafka_log_jars
from .clients import (
    authorizer_classpath,
    java_archive,
    newest_java_classpath,
    older_java_classpath,
    older_streams_classpath,
)
from .spark_connector import connector_jars
from .tools import tools_classpath

BUILDS: tuple[Callable[[], object], ...] = (
    java_archive,
    older_java_classpath,
    newest_java_classpath,
    authorizer_classpath,
    partial(older_streams_classpath, "3.9.1"),
    tools_classpath,
    kafka_jars,
    kafka_archive,
    kafka_log_jars,
    connector_jars,
)


def missing() -> list[str]:
    """Build everything; return the reasons for which parts could not be built."""
    failures = []
    for build in BUILDS:
        try:
            build()
        except Unavailable as why:
            failures.append(str(why))
    return failures


if __name__ == "__main__":
    sys.exit("\n".join(missing()) or None)
