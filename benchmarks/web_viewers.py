"""Rows of the page's benchmark about many who look at once: requests to the store, memory, bytes of a page."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from headrace.base.ports import reserve_port
from servers import stop, wait_for_port
from web_bench import Bench, get, json_of, pss, wait_until
from web_log import working
from web_records import put_log, put_points, put_run

MANY = 50
_CONFIG = """
daemon off;
worker_processes 1;
pid {scratch}/nginx.pid;
error_log {scratch}/error.log warn;
events {{ worker_connections 1024; }}
http {{
  log_format asked "$status $request_method $request_uri";
  access_log {scratch}/access.log asked;
  client_max_body_size 0;
  client_body_temp_path {scratch}/body;
  proxy_temp_path {scratch}/proxy;
  fastcgi_temp_path {scratch}/fastcgi;
  uwsgi_temp_path {scratch}/uwsgi;
  scgi_temp_path {scratch}/scgi;
  upstream store {{ server {store}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://store;
      proxy_set_header Host $http_host;
      proxy_set_header Connection "";
      proxy_http_version 1.1;
      proxy_request_buffering off;
    }}
  }}
}}
"""


@dataclass
class CountingProxy:
    """nginx before a store: what its access log says is what the store was asked. A context manager."""

    store: str
    scratch: Path
    endpoint: str = ""
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.scratch.mkdir(parents=True)
        port = reserve_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        config = self.scratch / "nginx.conf"
        config.write_text(_CONFIG.format(scratch=self.scratch, store=urlsplit(self.store).netloc, port=port))
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        self._process = subprocess.Popen([nginx, "-p", str(self.scratch), "-c", str(config)], stdin=subprocess.DEVNULL)
        wait_for_port(port, self._process, self.scratch / "error.log")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._process is not None:
            stop(self._process)

    def asked(self) -> list[str]:
        """One request a line so far: status, method, path and query."""
        return (self.scratch / "access.log").read_text().splitlines()


@dataclass
class Viewer:
    """Who has a run's page, its metrics and its log open: asks as `page.js` and `log.js` do, every five seconds and
    every second. `asked`: answers so far; `failed`: how the others ended.
    """

    url: str
    token: str
    run: str
    asked: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    total: int = 0

    def look(self, ended: threading.Event) -> None:
        due = {"log": random.uniform(0, 1), "run": random.uniform(0, 5), "metrics": random.uniform(0, 5)}
        began = time.monotonic()
        while not ended.wait(max(0.0, min(due.values()) - (time.monotonic() - began))):
            what = min(due, key=lambda one: due[one])
            try:
                self._ask(what)
                self.asked += 1
            except OSError as error:
                self.failed[type(error).__name__] += 1
            due[what] = time.monotonic() - began + (1 if what == "log" else 5)

    def _ask(self, what: str) -> None:
        if what == "log":
            query = f"stream=stdout&start={max(0, self.total - 1)}&count=1000"
            told = json_of(self.url, self.token, f"/api/v1/runs/{self.run}/log?{query}")
            self.total = told.get("total", self.total)
        else:
            get(f"{self.url}/runs/{self.run}{'' if what == 'run' else '/metrics'}", self.token)


def viewers(bench: Bench) -> None:
    """Requests of the page's server for a live run, one minute with one viewer, one with fifty."""
    seconds = bench.options.seconds
    line = "print(f'line {at} {n}', flush=True), hr.log({'loss': 1 / (1 + at)}, step=at * 10 + n)"
    each = f"[({line}) for n in range(10)]"
    with (
        CountingProxy(bench.server.endpoint, bench.scratch / "proxy") as proxy,
        working(bench, "watched", each),
        bench.web("viewers", AWS_ENDPOINT_URL_S3=proxy.endpoint) as (url, token, process),
    ):
        there = lambda: json_of(url, token, "/api/v1/runs/watched/log").get("total", 0) > 0  # noqa: E731
        wait_until("lines of the run", there, 120)
        counts = {count: _looking(bench, count, seconds, url, token, proxy) for count in (1, MANY)}
        told = f"asked: as with one, {counts[1]}; {counts[MANY] / max(1, counts[1]):.2f} of it"
        bench.row(
            f"requests to the bucket in {seconds} s, {MANY} viewers of a live run", counts[MANY], "requests", told
        )
        bench.row(f"memory of the server with {MANY} viewers of a run (PSS)", pss(process), "MB", "asked: < 120")
    weight(bench)


def _looking(bench: Bench, count: int, seconds: float, url: str, token: str, proxy: CountingProxy) -> int:
    """Requests to the store meanwhile."""
    ended = threading.Event()
    all_ = [Viewer(url, token, "watched") for _ in range(count)]
    crew = [threading.Thread(target=one.look, args=(ended,)) for one in all_]
    for one in crew:
        one.start()
    ended.wait(10)
    before, answered = len(proxy.asked()), sum(one.asked for one in all_)
    ended.wait(seconds)
    asked, answers = proxy.asked()[before:], sum(one.asked for one in all_) - answered
    ended.set()
    for one in crew:
        one.join()
    failed = sum((one.failed for one in all_), Counter[str]())
    kinds = Counter(" ".join(line.split()[:2]) for line in asked)
    parts = ", ".join(f"{kind}: {number}" for kind, number in kinds.most_common())
    bench.row(f"requests to the bucket in {seconds} s, viewers: {count}", len(asked), "requests", parts)
    told = f"{sum(failed.values())} failed {dict(failed) or ''}".strip()
    bench.row(f"answers of the page meanwhile, viewers: {count}", answers / seconds, "a second", told)
    return len(asked)


def weight(bench: Bench) -> None:
    """Bytes on the wire, headers and compression as they are, of a browser's first load."""
    name = "seen"
    put_run(bench.store, name)
    put_points(bench.store, name, 500_000, 3, bench.scratch)
    put_log(bench.store, name, 100_000)
    with bench.web("weight") as (url, token, _):
        get(f"{url}/runs/{name}", token)
        with bench.looking() as page:
            client = page.context.new_cdp_session(page)
            client.send("Network.enable")
            sizes: list[float] = []
            client.on("Network.loadingFinished", lambda one: sizes.append(one["encodedDataLength"]))
            page.goto(f"{url}/runs/{name}?token={token}", wait_until="networkidle")
            light = sum(sizes)
            page.locator(".plot").first.hover()
            bench.wait_for(page, ".uplot")
            page.wait_for_load_state("networkidle")
    bench.row("first load of a run's page, on the wire", light / 1e3, "kB", f"{len(sizes)} answers with the chart")
    bench.row("the same, with its chart looked at closer", sum(sizes) / 1e3, "kB", "asked: ≤ 120")
