"""Who is let in: a browser that names one of our own hosts, from no other site, and knows the token.

The token is made anew by every server, unless one is given. It comes once, in the address; from then on the
browser has a cookie in its place, which is of no use for another server: it is made of the token by a secret
of this process, and its name has the port, since browsers keep one jar for all ports of a host.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cascade_sim.foundation.errors import UserError
from cascade_sim.storage.files import read_file

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?")
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
LONGEST_URL = 20_000
MIN_TOKEN = 16
TOKEN = re.compile(rf"[A-Za-z0-9._~-]{{{MIN_TOKEN},512}}")  # what an address and a cookie take as it is
MAX_OF_FILE = 4096  # bytes


@dataclass(frozen=True)
class AccessPolicy:
    """Who is let in."""

    hosts: frozenset[str]  # names by which this server is called, without the port
    port: int
    token: str = field(repr=False)
    is_any_address: bool = False  # also by any address of this machine
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def knows(self, host: str) -> bool:
        """Whether a Host header is one of ours: a name that resolves to us by a trick is not."""
        parts = HOST.fullmatch(host.lower())
        if parts is None:
            return False
        name = parts["address"] or parts["name"]
        if name in self.hosts:
            return True
        if not self.is_any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    @property
    def cookie_name(self) -> str:
        return f"cascade_sim_{self.port}"

    @property
    def cookie(self) -> str:
        return hmac.new(self.secret, self.token.encode(), "sha256").hexdigest()

    def admits(self, request: Request) -> bool:
        """Whether a request has the token or, where it has none, the cookie."""
        given = request.query_params.get("token")
        wanted = self.token if given else self.cookie
        found = given or request.cookies.get(self.cookie_name) or ""
        return hmac.compare_digest(found.encode("utf-8", "replace"), wanted.encode())

    def address(self, host: str) -> str:
        """What a person opens, in quotes: shells have a meaning for a question mark."""
        name = f"[{host}]" if ":" in host else host
        return f"'http://{name}:{self.port}/?token={self.token}'"


def door_of(host: str, port: int, token: str | None = None) -> AccessPolicy:
    """Who is let in at this address; without a token, one is made. UserError for one that is none."""
    if token is None:
        token = secrets.token_hex(24)
    if not TOKEN.fullmatch(token):
        raise UserError(
            f"the token has {len(token)} characters; give {MIN_TOKEN} to 512 that cannot be guessed, of "
            "A-Z, a-z, 0-9 and - . _ ~, or none, and one is made"
        )
    if host.lower() in LOOPBACK:
        return AccessPolicy(LOOPBACK, port, token)
    is_any = host in ("0.0.0.0", "::")
    names = {socket.gethostname().lower()} if is_any else {host.lower()}
    return AccessPolicy(LOOPBACK | names, port, token, is_any)


def token_in(file: Path) -> str:
    """The token that a file holds, in its only line; UserError if it does not."""
    try:
        content = read_file(file, most=MAX_OF_FILE, follows=True)
    except OSError as error:
        raise UserError(f"--token-file: cannot read {file}: {error.strerror}") from None
    return content.decode("ascii", "replace").removesuffix("\n").removesuffix("\r")


class AccessMiddleware:
    """Refuses at the door, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, door: AccessPolicy) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        request = Request(scope)
        set_cookie = b""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                if set_cookie:
                    extra.append((b"set-cookie", set_cookie))
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        refused = self._refusal(request)
        if refused is not None:
            await refused(scope, receive, sending)
            return
        if request.query_params.get("token"):
            door = self._door
            set_cookie = f"{door.cookie_name}={door.cookie}; HttpOnly; SameSite=Strict; Path=/".encode()
        await self._app(scope, receive, sending)

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._door.knows(hosts[0]):
            return refuse("this page is not served under that name", 421)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and request.url.path != "/":
            return refuse("questions come from the page itself, not from another site", 403)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != hosts[0]:
            return refuse("questions come from the page itself, not from another site", 403)
        if request.method not in ("GET", "HEAD"):
            return refuse("only GET: nothing here is to be changed", 405)
        if len(request.scope.get("query_string", b"")) + len(request.scope["path"]) > LONGEST_URL:
            return refuse("the address is too long", 414)
        if not self._door.admits(request):
            return refuse("the address needs its token: open the one that serve printed, with ?token=…", 401)
        return None


def refuse(words: str, status: int) -> JSONResponse:
    """An answer that is none, and why."""
    return JSONResponse({"error": words}, status)
