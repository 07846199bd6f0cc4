"""A Kafka class in a JVM, driven line by line through a small Java program beside the test."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Beside:
    """A JVM that runs `source`, whose main class is `main`: a line in, a line out."""

    def __init__(self, source: Path, main: str, jars: Path, directory: Path) -> None:
        subprocess.run(
            ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", directory, source],
            check=True,
            timeout=300,
            capture_output=True,
        )
        self._process = subprocess.Popen(
            ["java", "-cp", f"{directory}:{jars}/*", main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, line: str) -> str:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return process.stdout.readline().rstrip("\n")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
