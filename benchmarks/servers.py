"""The servers of the benchmark: a static nginx that speaks enough S3, with and without latency, and `wrk` against it.

nginx answers GETs with ``sendfile`` from the page cache and never checks signatures: what is measured is the client.
Listings (``?list-type=2``) come from ``index.tsv`` through a few lines of Lua, in pages of 1,000, with prefix,
delimiter, start-after and continuation token. Every key below ``flat/`` is one and the same object. Four ports: plain;
15-25 ms of latency; the same and one second more on 0.5 % of requests; TLS, of an authority that is in a file.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import trustme

from headrace.base.ports import reserve_port

MODULES = ("ndk_http_module.so", "ngx_http_lua_module.so")
MODULE_FOLDER = Path("/usr/lib/nginx/modules")

_LISTING = """
local objects, starts = {}, {}
for line in io.lines(INDEX) do
  local key, size, mtime = line:match("^([^\\t]*)\\t([^\\t]*)\\t([^\\t]*)\\t")
  objects[#objects + 1] = {key, size, tonumber(mtime)}
end
local function after(name)          -- index of the first key > name
  local low, high = 1, #objects + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if objects[middle][1] > name then high = middle else low = middle + 1 end
  end
  return low
end
function listing()
  local args = ngx.req.get_uri_args()
  local prefix, delimiter = args["prefix"] or "", args["delimiter"] or ""
  local most = tonumber(args["max-keys"] or 1000)
  if most > 1000 then most = 1000 end
  local from = args["continuation-token"] or args["start-after"] or ""
  if type(from) ~= "string" then from = "" end
  local at = after(from)
  if from < prefix then
    at = after(prefix)
    if at > 1 and objects[at - 1][1] == prefix then at = at - 1 end
  end
  local out, folders, last, count = {}, {}, "", 0
  while at <= #objects and count < most do
    local object = objects[at]
    local key = object[1]
    if key:sub(1, #prefix) ~= prefix then break end
    local cut = delimiter ~= "" and key:find(delimiter, #prefix + 1, true)
    if cut then
      local name = key:sub(1, cut + #delimiter - 1)
      folders[#folders + 1] = "<CommonPrefixes><Prefix>" .. name .. "</Prefix></CommonPrefixes>"
      count, last = count + 1, name .. "\\239\\191\\189"   -- past everything in that folder
      at = after(last)
    else
      out[#out + 1] = "<Contents><Key>" .. key .. "</Key><LastModified>" ..
        os.date("!%Y-%m-%dT%H:%M:%S.000Z", object[3]) .. "</LastModified><ETag>&quot;" ..
        string.format("%x-%x", object[3], tonumber(object[2])) .. "&quot;</ETag><Size>" .. object[2] ..
        "</Size><StorageClass>STANDARD</StorageClass></Contents>"
      count, last, at = count + 1, key, at + 1
    end
  end
  local more = at <= #objects and objects[at][1]:sub(1, #prefix) == prefix
  ngx.header["Content-Type"] = "application/xml"
  ngx.print('<?xml version="1.0" encoding="UTF-8"?><ListBucketResult ' ..
    'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bench</Name><Prefix>' .. prefix .. "</Prefix><KeyCount>" ..
    count .. "</KeyCount><MaxKeys>" .. most .. "</MaxKeys><IsTruncated>" .. tostring(more) .. "</IsTruncated>" ..
    (more and ("<NextContinuationToken>" .. last .. "</NextContinuationToken>") or ""))
  ngx.print(out)
  ngx.print(folders)
  ngx.print("</ListBucketResult>")
end
"""

_LATE = "ngx.sleep({least:.3f} + math.random() * {more:.3f})"
_STRAGGLE = " if math.random() < 0.005 then ngx.sleep(1) end"

_SERVER = """
  server {{
    listen 127.0.0.1:{port}{tls};
    root {root};
    location = /bench {{ content_by_lua_block {{ listing() }} }}
    location = /bench/ {{ content_by_lua_block {{ listing() }} }}
    location /bench/flat/ {{ rewrite ^ /bench/small/000000.image break; {access} }}
    location / {{ {access} }}
  }}
"""

_CONFIG = """
{modules}
daemon off;
worker_processes {workers};
worker_rlimit_nofile 8192;
pid {scratch}/nginx.pid;
error_log {scratch}/error.log warn;
events {{ worker_connections 4096; multi_accept on; }}
http {{
  access_log off;
  default_type binary/octet-stream;
  sendfile on;
  tcp_nopush on;
  tcp_nodelay on;
  keepalive_timeout 600s;
  keepalive_requests 100000000;
  open_file_cache max=50000 inactive=1h;
  open_file_cache_valid 1h;
  ssl_certificate {scratch}/server.pem;
  ssl_certificate_key {scratch}/server.pem;
  client_body_temp_path {scratch}/body;
  proxy_temp_path {scratch}/proxy;
  fastcgi_temp_path {scratch}/fastcgi;
  uwsgi_temp_path {scratch}/uwsgi;
  scgi_temp_path {scratch}/scgi;
  init_by_lua_block {{ local INDEX = "{index}" {listing} }}
  init_worker_by_lua_block {{ math.randomseed(ngx.worker.id() + 1) }}
{servers}
}}
"""


@dataclass
class StaticServer:
    """nginx over the benchmark's data. A context manager; everything it writes is below `scratch`."""

    root: Path
    scratch: Path
    workers: int = 0
    plain: str = ""
    latency: str = ""
    stragglers: str = ""
    secure: str = ""
    delay_ms: tuple[float, float] = (15, 25)
    """Of `latency` and `stragglers`: each answer waits between so many milliseconds and so many."""
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        missing = [name for name in MODULES if not (MODULE_FOLDER / name).exists()]
        if not os.path.exists(nginx) or missing:
            raise SystemExit("nginx with Lua is missing: apt-get install nginx-light libnginx-mod-http-lua wrk curl")
        self.scratch.mkdir(parents=True, exist_ok=True)
        ports = [reserve_port() for _ in range(4)]
        self.plain, self.latency, self.stragglers, _ = (f"http://127.0.0.1:{port}" for port in ports)
        self.secure = f"https://127.0.0.1:{ports[3]}"
        self._certify()
        config = self.scratch / "nginx.conf"
        config.write_text(self._config(ports))
        self._process = subprocess.Popen([nginx, "-p", str(self.scratch), "-c", str(config)], stdin=subprocess.DEVNULL)
        try:
            for port in ports:
                wait_for_port(port, self._process, self.scratch / "error.log")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop()

    @property
    def authority(self) -> Path:
        """The certificate of the authority that vouches for `secure`, PEM."""
        return self.scratch / "ca.pem"

    @property
    def pid(self) -> int:
        """Of the first of its processes."""
        if self._process is None:
            raise SystemExit("nginx does not run")
        return self._process.pid

    def _stop(self) -> None:
        if self._process is not None:
            stop(self._process)
            self._process = None

    def _certify(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.authority))
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(self.scratch / "server.pem"))

    def _config(self, ports: list[int]) -> str:
        least, most = self.delay_ms
        latency = _LATE.format(least=least / 1e3, more=(most - least) / 1e3)
        late, later = (f"access_by_lua_block {{ {lua} }}" for lua in (latency, latency + _STRAGGLE))
        kinds = (("", ""), (late, ""), (later, ""), ("", " ssl"))
        return _CONFIG.format(
            modules="\n".join(f"load_module {MODULE_FOLDER / name};" for name in MODULES),
            workers=self.workers or min(2, os.cpu_count() or 1),
            scratch=self.scratch,
            index=self.root / "index.tsv",
            listing=_LISTING,
            servers="".join(
                _SERVER.format(port=port, root=self.root, access=access, tls=tls)
                for port, (access, tls) in zip(ports, kinds, strict=True)
            ),
        )


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = 20.0) -> None:
    """Until something accepts on loopback `port`.

    Raises:
        SystemExit: the process ended, or nothing accepts in time; shows the end of `log`.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
    raise SystemExit(f"the server on port {port} did not start: {tail}")


def stop(process: subprocess.Popen[bytes], seconds: float = 5.0) -> None:
    """Ask a process to end, then make it."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
