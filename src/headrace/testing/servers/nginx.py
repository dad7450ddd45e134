"""nginx serving a folder as path-style S3 or plain HTTP would: the server to find a client's limit with.

Signatures are not looked at. Directives: nginx.org, ngx_http_core_module; Lua: Debian's libnginx-mod-http-lua.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from headrace.base.errors import UnsupportedError
from headrace.base.ports import reserve_port
from headrace.testing.servers.process import HOST, Server, find_program, listens

_MODULES = Path("/usr/lib/nginx/modules")
_CONFIG = """\
{modules}{user}
daemon off;
worker_processes {workers};
worker_rlimit_nofile 4096;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_requests 1000000;
    keepalive_timeout 300s;
    open_file_cache max=200000 inactive=300s;
    open_file_cache_valid 300s;
    default_type application/octet-stream;
    merge_slashes off;
{random}
    server {{
        listen {host}:{port} backlog=1024;
        root {root};
{listing}
        location / {{
{late}
        }}
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Delay:
    """Latency for each request: uniform in [low_s, high_s], and `straggler_s` more for a share `straggler_rate`."""

    low_s: float = 0.015
    high_s: float = 0.025
    straggler_rate: float = 0.005
    straggler_s: float = 1.0
    seed: int = 1

    def lua(self) -> str:
        """The directive that waits."""
        straggle = f"if math.random() < {self.straggler_rate} then t = t + {self.straggler_s} end"
        spread = self.high_s - self.low_s
        return f"access_by_lua_block {{ local t = {self.low_s} + {spread} * math.random(); {straggle}; ngx.sleep(t) }}"


class Nginx(Server):
    """A static server over `root`: ``/bucket/key`` is the file ``root/bucket/key``, with ranges, ETags and If-Match.

    Files must not change while it runs (it keeps them open).

    Args:
        delay: dawdle; needs the Lua module.
        listing: an endpoint (``http://127.0.0.1:8333``) that answers requests holding ``list-type=``.
        workers: processes.

    Raises (on entry):
        UnsupportedError: nginx, or its Lua module when `delay` is given, is missing.
        ServerError: it did not start.
    """

    def __init__(self, root: Path, *, delay: Delay | None = None, listing: str | None = None, workers: int = 1) -> None:
        super().__init__()
        self.root = root.resolve()
        self.port = 0
        self._delay, self._listing, self._workers = delay, listing, workers

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        program = find_program("nginx", package="nginx-light")
        self.port = reserve_port()
        config = self.folder / "nginx.conf"
        config.write_text(
            _CONFIG.format(
                modules=_lua_modules() if self._delay else "",
                user="user root;" if os.geteuid() == 0 else "",
                random=f"    init_worker_by_lua_block {{ math.randomseed({self._delay.seed}) }}" if self._delay else "",
                late=f"            {self._delay.lua()}" if self._delay else "",
                listing=_pass_listings(self._listing) if self._listing else "",
                workers=self._workers,
                folder=self.folder,
                host=HOST,
                port=self.port,
                root=self.root,
            )
        )
        argv = [program, "-e", str(self.folder / "error.log"), "-c", str(config), "-p", str(self.folder)]
        process = self.launch("nginx", argv, death=signal.SIGTERM)  # its master ends the workers
        process.wait_until(lambda: listens(self.port))


def _lua_modules() -> str:
    modules = [_MODULES / name for name in ("ndk_http_module.so", "ngx_http_lua_module.so")]
    missing = [module for module in modules if not module.is_file()]
    if missing:
        raise UnsupportedError("is not installed", path=str(missing[0]), hint="apt install libnginx-mod-http-lua")
    return "".join(f"load_module {module};\n" for module in modules)


def _pass_listings(endpoint: str) -> str:
    return f"""\
        error_page 418 = @listing;
        if ($args ~ "list-type=") {{ return 418; }}
        location @listing {{
            proxy_pass {endpoint};
            proxy_set_header Host $http_host;
            proxy_http_version 1.1;
        }}"""
