"""Extract the names of metrics and labels from PromQL expressions."""

from __future__ import annotations

import re
from typing import NamedTuple

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_VARIABLE = re.compile(r"\$\{?\w+\}?")
_DURATION = re.compile(r"\[[^\]]*\]")
_MATCHERS = re.compile(r"([a-zA-Z_:][\w:]*)?\s*\{([^}]*)\}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_NAME = re.compile(r"\b[a-zA-Z_:][\w:]*(?!\w|\s*\()")

_KEYWORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "inf", "nan"}


class Names(NamedTuple):
    """The names in an expression."""

    metrics: set[str]
    labels: set[str]
    """Labels by which the expression selects or groups."""


def names(expression: str) -> Names:
    """Return the names of metrics and labels; strings, variables and durations are left out."""
    text = _DURATION.sub("", _VARIABLE.sub("", _STRING.sub('""', expression)))
    labels = {
        label for matched in _MATCHERS.findall(text) for label in re.findall(r"(\w+)\s*(?:=|!)", matched[1])
    }
    for grouped in _GROUPING.findall(text):
        labels |= set(re.findall(r"\w+", grouped))
    text = _GROUPING.sub(" ", re.sub(r"\{[^}]*\}", " ", text))
    metrics = {name for name in _NAME.findall(text) if name.lower() not in _KEYWORDS}
    return Names(metrics, labels)


def legend_labels(legend: str) -> set[str]:
    """Return the labels in Grafana's `{{label}}` and Prometheus' `{{ $labels.label }}`."""
    return set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", legend))
