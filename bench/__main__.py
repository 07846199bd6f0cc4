"""`python -m bench [codec] [start] [heartbeat] …`: all benchmarks, or those that are named."""

from __future__ import annotations

import sys

from bench import broker, codec

BENCHMARKS = {
    "codec": codec.main,
    "start": broker.start,
    "idle": broker.idle,
    "api-versions": broker.api_versions,
    "heartbeat": broker.heartbeat,
    "commit": broker.commit,
    "produce": broker.produce,
}


def main() -> int:
    asked = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in asked if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
        return 2
    for name in asked:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
