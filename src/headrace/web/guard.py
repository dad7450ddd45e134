"""Who may see the page, and what a browser may do with it: a wrapper around the whole application.

A token is wanted on loopback too, since every user of a shared node reaches it. It comes in the URL once, as
``?token=``, and is a cookie from then on, so that it stays out of what a browser remembers and sends on.

Sources: RFC 6265bis (cookies), W3C Content Security Policy Level 3, the Fetch standard on ``Sec-Fetch-Site``.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

from headrace.web.options import Options

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADER: Final = "x-headrace"
"""A header that a page of another site cannot send without being asked for first: wanted with every POST."""
HEALTH: Final = "/healthz"
"""Says only that the process answers: for probes, which have no token."""
_OURS: Final = ("localhost", "127.0.0.1", "[::1]")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "media-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_ALWAYS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)
SEALED: Final = {"content-security-policy": "default-src 'none'; sandbox"}
"""Headers for bytes of the bucket: should a browser ever show them as a page, it may do nothing."""


class Guard:
    """An ASGI application around another. `public`: paths below the base that need no token (scripts and styles)."""

    def __init__(self, inner: Application, options: Options, *, public: str = "/static/") -> None:
        self._inner, self._options, self._public = inner, options, public
        self._hosts = {*_OURS, *(name.lower() for name in options.hosts)}
        self._cookie = _cookie_name(options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        sealed = _sealing(send)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(sealed, *refusal)
            return
        if scope["path"] == HEALTH:
            await _answer(sealed, 200, "ok\n")
            return
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)).get("token")
        if given is not None and self._is_token(given) and scope["method"] in ("GET", "HEAD"):
            await _answer(sealed, 303, "", self._welcome(scope))
            return
        if not self._may_see(scope, headers):
            text = "This page wants its token: open the URL that `headrace web` printed.\n"
            await _answer(sealed, 401, text)
            return
        await self._inner(scope, receive, sealed)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Why a request is not looked at any further."""
        host = headers.get("host", "")
        if not self._known(host):
            return 421, "This host is not known here: --hosts NAME makes it so.\n"
        if scope["method"] in ("GET", "HEAD"):
            return None
        if scope["method"] not in ("POST", "PUT", "DELETE"):
            return 405, "no such method\n"
        origin = headers.get("origin", "")
        if urlsplit(origin).netloc.lower() != host.lower() or headers.get(HEADER) != "1":
            return 403, "This was not asked by the page itself.\n"
        return None

    def _known(self, host: str) -> bool:
        """Whether it is a name of ours: else another site's name may have been made to lead here (DNS rebinding)."""
        if self._options.socket:  # no name leads to it; a proxy of this user's has looked at its own
            return True
        name = host.lower() if host.endswith("]") else host.lower().rpartition(":")[0] or host.lower()
        if name in self._hosts:
            return True
        if self._options.host not in ("0.0.0.0", "::", name):  # noqa: S104
            return False
        try:
            ipaddress.ip_address(name.strip("[]"))  # an address is nobody's name
        except ValueError:
            return False
        return True

    def _may_see(self, scope: Scope, headers: dict[str, str]) -> bool:
        if str(scope["path"]).startswith(self._public):
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._is_token(given.strip())
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and self._is_token(found.value)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._options.token.encode())

    def _welcome(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Back to the same page without the token in its URL, which is a cookie now."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        rest = urlencode([pair for pair in query if pair[0] != "token"])
        path = scope.get("raw_path", str(scope["path"]).encode()).decode("latin-1").partition("?")[0]
        to = f"{self._options.base}/{path.lstrip('/')}{'?' + rest if rest else ''}"
        cookie = f"{self._cookie}={self._options.token}; HttpOnly; SameSite=Strict; Path={self._options.base or '/'}"
        if scope.get("scheme") == "https":
            cookie += "; Secure"
        return [(b"location", to.encode("latin-1")), (b"set-cookie", cookie.encode("latin-1"))]


def _cookie_name(options: Options) -> str:
    """One of its own: two pages on one host, on different ports, share their cookies."""
    return f"headrace-{hmac.new(options.token.encode(), b'cookie', 'sha256').hexdigest()[:8]}"


def _sealing(send: Send) -> Send:
    async def sealed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            there = {name.lower() for name, _ in headers}
            headers += [pair for pair in _ALWAYS if pair[0] not in there]
            message = {**message, "headers": headers}
        await send(message)

    return sealed


async def _answer(send: Send, status: int, text: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    told = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": text.encode()})
