"""STUB until merged."""

from typing import Any


async def browse(cluster: Any, query: Any) -> Any:
    return {}


def parse_query(fields: Any) -> Any:
    return fields
