"""Builds by Maven whatever tests here ask for when they first need it: `python -m tests.against.build`.

Nobody has to call it. Called beforehand, beside something else, it spares the tests waiting for one another's
builds. What cannot be built is told, and left to the tests, which say what became of it."""

import sys
from collections.abc import Callable
from functools import partial

from .brokers import Unavailable, kafka_jars
from .clients import java_archive, newest_java_classpath, older_java_classpath, older_streams_classpath
from .tools import tools_classpath

BUILDS: tuple[Callable[[], object], ...] = (
    java_archive,
    older_java_classpath,
    newest_java_classpath,
    partial(older_streams_classpath, "3.9.1"),
    tools_classpath,
    kafka_jars,
)


def missing() -> list[str]:
    """Why some of it cannot be built."""
    told = []
    for build in BUILDS:
        try:
            build()
        except Unavailable as why:
            told.append(str(why))
    return told


if __name__ == "__main__":
    sys.exit("\n".join(missing()) or None)
