"""`python -m bench.console`: the live page of a group of 1,000 members and 5,000 partitions.

Prints the time in which the server builds the group's view, the time until the page shows its first rows, the
time of an update in the page (applying it, the next frame, and the layout), and the CPU of the browser's main
thread and of the server while the group commits ten times per second. The members heartbeat all the time.
Needs Chromium and the extra `dev`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from playwright.async_api import Page, async_playwright
from tests.browser.chromium import chromium

from bench.crowd import Crowd
from bench.drive import Windows
from bench.settling import grown
from bench.systems import Lab, Running, report_progress, spent_s
from bench.topics import make_topic, wait_for_coordinator
from bench.wire import Asking, asking
from konvene.client.net.cluster import Cluster
from konvene.console.views.group import GroupView
from konvene.console.watch import ClusterWatch
from konvene.errors import Errors
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

MEMBERS, PARTITIONS = 1_000, 5_000
RATE = 10
"""Commits per second, each of which is an update of the page."""
SECONDS = 10.0
BUILDS = 10
VISITS = 5
LONG_MS = "600000"
SETTINGS = {
    "group.consumer.max.session.timeout.ms": LONG_MS, "group.consumer.session.timeout.ms": LONG_MS,
    "offsets.topic.num.partitions": "1",
}  # fmt: skip
TARGETS = {"first rows, ms": 1_000.0, "update in the page, ms": 100.0, "browser CPU, % of a core": 5.0}
TABS = {"timeline": ".chart svg", "members": "#members .grid-row", "units": "#units .grid-row"}

PROBE = """() => {
  window.updates = [];
  window.waiting = null;
  const listen = EventSource.prototype.addEventListener;
  EventSource.prototype.addEventListener = function (name, listener, ...rest) {
    const timed = name !== "change" ? listener : (event) => {
      const began = performance.now();
      listener(event);
      window.waiting = (window.waiting || 0) + performance.now() - began;
    };
    return listen.call(this, name, timed, ...rest);
  };
  const request = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) => request((at) => {
    const began = performance.now();
    callback(at);
    if (window.waiting === null || !document.body) return;
    document.body.getBoundingClientRect();
    window.updates.push(window.waiting + performance.now() - began);
    window.waiting = null;
  });
}"""
"""Collects the time of each update in `updates`."""


class Row(NamedTuple):
    """A figure with all its values; its target, if it has one, is in `TARGETS`."""

    what: str
    values: Sequence[float]

    def __str__(self) -> str:
        middle, least, most = statistics.median(self.values), min(self.values), max(self.values)
        target = TARGETS.get(self.what.partition(" (")[0])
        beside = "" if target is None else f"  target {target:g}{'' if middle <= target else ': MISSED'}"
        return f"{self.what:<44}{middle:>10.1f}  ({least:.1f}–{most:.1f}){beside}"


async def measure(running: Running, members: int, partitions: int, seconds: float) -> list[Row]:
    """Return all figures for a group of this size."""
    topic = make_topic(running, partitions)
    crowd = Crowd(running.port, topic)
    await grown(crowd, members)
    await crowd.settle(0)
    report_progress(f"{members} members own {partitions} partitions")
    line = await asking(running.port)
    await commit(line, crowd, range(partitions), 0)
    rows = await builds(running, crowd)
    async with console(running) as (url, process), async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for tab, selector in TABS.items():
            rows += await in_browser(
                await browser.new_page(viewport={"width": 1280, "height": 900}),
                f"{url}groups/{crowd.group}?tab={tab}", selector, tab, line, crowd, process, seconds,
            )  # fmt: skip
        await browser.close()
    await crowd.end()
    return rows


async def builds(running: Running, crowd: Crowd) -> list[Row]:
    """Return the time and CPU in which the view is built, with answers of the broker and from the cache."""
    watch = ClusterWatch(Cluster(f"127.0.0.1:{running.port}"))
    following = asyncio.ensure_future(watch.run())
    while watch.tail.state.state != "live":  # noqa: ASYNC110 (what is awaited has no event)
        await asyncio.sleep(0.05)
    view = GroupView(watch, {"group": crowd.group})
    took, again, cpu = [], [], []
    for _ in range(BUILDS):
        watch.forget()
        await watch.group(crowd.group)
        began, spent = time.perf_counter(), time.process_time()
        await view.build()
        took.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - spent))
        began = time.perf_counter()
        await view.build()
        again.append(1000 * (time.perf_counter() - began))
    following.cancel()
    await asyncio.wait([following])
    return [
        Row("view built, with offsets of the broker, ms", took),
        Row("view built, CPU ms", cpu),
        Row("view built again, ms", again),
    ]


async def in_browser(
    page: Page, url: str, selector: str, tab: str, line: Asking, crowd: Crowd,
    process: subprocess.Popen[str], seconds: float,
) -> list[Row]:  # fmt: skip
    """Return the figures of one tab of the group's page."""
    await page.add_init_script(f"({PROBE})()")
    first = []
    for _ in range(VISITS):
        began = time.perf_counter()
        await page.goto(url, wait_until="commit")
        await page.locator(selector).first.wait_for()
        first.append(1000 * (time.perf_counter() - began))
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    await page.evaluate("updates.length = 0")
    before, spent = await metrics(session), spent_s(f"/proc/{process.pid}/stat")
    commits = await commit_often(line, crowd, seconds)
    after, spent = await metrics(session), spent_s(f"/proc/{process.pid}/stat") - spent
    updates = await page.evaluate("updates")
    await page.close()
    elapsed_s = after["Timestamp"] - before["Timestamp"]
    busy_s = after["TaskDuration"] - before["TaskDuration"]
    report_progress(f"{tab}: {commits} commits, {len(updates)} updates in {elapsed_s:.1f} s")
    return [
        Row(f"first rows, ms ({tab})", first),
        Row(f"updates per s ({tab})", [len(updates) / elapsed_s]),
        Row(f"update in the page, ms ({tab})", updates or [0.0]),
        Row(f"browser CPU, % of a core ({tab})", [100 * busy_s / elapsed_s]),
        Row(f"server CPU, % of a core ({tab})", [100 * spent / elapsed_s]),
    ]


async def metrics(session: Any) -> dict[str, float]:
    found = await session.send("Performance.getMetrics")
    return {each["name"]: each["value"] for each in found["metrics"]}


async def commit_often(line: Asking, crowd: Crowd, seconds: float) -> int:
    """Commit offsets of one partition after the other; return how often."""
    began = time.monotonic()
    count = round(seconds * RATE)
    for n in range(count):
        await asyncio.sleep(max(began + n / RATE - time.monotonic(), 0))
        await commit(line, crowd, [n % crowd.topic.partitions], n + 1)
    return count


async def commit(line: Asking, crowd: Crowd, partitions: Sequence[int], offset: int) -> None:
    """Commit an offset of these partitions as a member of the group."""
    member = crowd.members[0]
    each = tuple(OffsetCommitRequestPartition(partition_index=p, committed_offset=offset) for p in partitions)
    topic = OffsetCommitRequestTopic(name=crowd.topic.name, topic_id=crowd.topic.topic_id, partitions=each)
    request = OffsetCommitRequest(
        group_id=crowd.group, generation_id_or_member_epoch=member.epoch, member_id=member.member_id,
        topics=(topic,),
    )  # fmt: skip
    answer = await line.ask(request, OffsetCommitResponse)
    codes = {p.error_code for t in answer.topics for p in t.partitions}
    if codes != {Errors.NONE}:
        raise RuntimeError(f"commits were answered {codes}")


@asynccontextmanager
async def console(running: Running) -> AsyncIterator[tuple[str, subprocess.Popen[str]]]:
    """Run `konvene console` in a process of its own; yield its URL and the process."""
    command = [sys.executable, "-m", "konvene", "console", "--port", "0"]
    command += ["--bootstrap-server", f"127.0.0.1:{running.port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 (once)
    try:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        yield line.split()[-1], process
    finally:
        process.kill()
        process.communicate()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description="Measure the live page.")
    parser.add_argument("--members", type=int, default=MEMBERS, help="[%(default)d]")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="[%(default)d]")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of a window [%(default)g]")
    options = parser.parse_args(words)
    with Lab("konvene", Windows(options.seconds, 1, 0.0)) as lab:
        running = lab.shared(SETTINGS)
        wait_for_coordinator(running, "consumers")
        rows = asyncio.run(measure(running, options.members, options.partitions, options.seconds))
    print(f"A group of {options.members:,} members and {options.partitions:,} partitions:")
    for row in rows:
        print(f"  {row}")


if __name__ == "__main__":
    main()
