"""The page's server: what may be asked, who may ask, and in which order it is done.

Every question is a GET that changes nothing. Runs go by number, knobs by the words of `whatif --set`; no path
comes from outside. Who may ask: a browser that names one of our own hosts, from no other site and, where the
server listens beyond this machine, with the token.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import math
import re
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cascade_sim.analysis.report.readings import WHAT_IF_MEASURES, WHAT_IF_REVENUE
from cascade_sim.errors import UserError, shortened
from cascade_sim.live import browse, figures
from cascade_sim.live.knobs import curve_values, knobs_of
from cascade_sim.live.runs import Runs, command_line, market_hours
from cascade_sim.live.session import Session, Way
from cascade_sim.live.work import IDLE, LATER, NOW, SOON, Busy, Job, Stale, Wanted, Worker
from cascade_sim.storage.folder import json_text

HERE = Path(__file__).parent
FILES = {
    "/": ("live.html", "text/html; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
    "/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?")
COOKIE = "cascade_sim_token"
MOST_WORDS = 40  # knobs at a time
LONGEST = 2_000  # characters of a word
LONGEST_URL = 20_000
LEAST_TOKEN = 16
MOST_EXACT = 8  # exact answers that wait, of some seconds each
CURVE_MEASURES = (
    *(WHAT_IF_REVENUE, "revenue_per_request", "expected_ctr", "cpc", "rcs", "slots_filled"),
    *("welfare", "expected_rpm"),
)


@dataclass(frozen=True)
class Door:
    """Who is let in."""

    hosts: frozenset[str]  # names by which this server is called, without the port
    is_any_address: bool = False  # also by any address of this machine
    token: str | None = None

    def knows(self, host: str) -> bool:
        """Whether a Host header is one of ours: a name that resolves to us by somebody's trick is not."""
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


def door_of(host: str, token: str | None) -> Door:
    """Who is let in at this address; UserError for one beyond this machine without a good token."""
    loopback = {"127.0.0.1", "localhost", "::1"}
    if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
        raise UserError(f"--token: give at least {LEAST_TOKEN} signs that nobody can guess")
    if host.lower() in loopback:
        return Door(frozenset(loopback), token=token)
    if token is None:
        raise UserError(
            f"--host {host}: others could reach the page there; give a --token that they need, of at least "
            f"{LEAST_TOKEN} signs"
        )
    is_any = host in ("0.0.0.0", "::")
    names = {socket.gethostname().lower()} if is_any else {host.lower()}
    return Door(frozenset({*loopback, *names}), is_any, token)


class Gate:
    """Refuses at the door, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
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
        if self._door.token is not None and request.query_params.get("token"):
            set_cookie = f"{COOKIE}={self._door.token}; HttpOnly; SameSite=Strict; Path=/".encode()
        await self._app(scope, receive, sending)

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._door.knows(hosts[0]):
            return _refuse("this page is not served under that name", 421)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and request.url.path != "/":
            return _refuse("questions come from the page itself, not from another site", 403)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != hosts[0]:
            return _refuse("questions come from the page itself, not from another site", 403)
        if request.method not in ("GET", "HEAD"):
            return _refuse("only GET: nothing here is to be changed", 405)
        if len(request.scope.get("query_string", b"")) + len(request.scope["path"]) > LONGEST_URL:
            return _refuse("the address is too long", 414)
        token = self._door.token
        if token is not None:
            given = request.query_params.get("token") or request.cookies.get(COOKIE) or ""
            if not hmac.compare_digest(given.encode(), token.encode()):
                return _refuse("the address needs its token: ?token=…", 401)
        return None


def _refuse(words: str, status: int) -> JSONResponse:
    return JSONResponse({"error": words}, status)


class Question:
    """The parts of a request that questions share. UserError for what is no question."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.run = self.whole("run", 0)

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._request.query_params.get(name)
        if value is None or value == "":
            return default
        if len(value) > LONGEST:
            raise UserError(f"{name}: {len(value):,} characters are too many")
        return value

    def whole(self, name: str, default: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdecimal() or len(text) > 15:
            raise UserError(f"{name}: expected a whole number, found {text[:40]!r}")
        return int(text)

    def number(self, name: str) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"{name}: expected a number, found {text[:40]!r}")
        return value

    def flag(self, name: str) -> bool:
        return self.text(name) in ("1", "true")

    def ways(self, session: Session) -> tuple[Way, Way]:
        """The way with its knobs turned, and the arm that it is held against."""
        words = self._request.query_params.getlist("set")
        if len(words) > MOST_WORDS or any(len(word) > LONGEST for word in words):
            raise UserError(f"at most {MOST_WORDS} knobs at a time, of at most {LONGEST:,} characters each")
        arm = self.text("arm", session.baseline) or session.baseline
        against = self.text("against", arm) or arm
        return Way(arm, tuple(words)), Way(against)

    def key(self, kind: str) -> tuple[str, str] | None:
        """Whose question it is, of its kind: a newer one of the same takes its place."""
        client = self.text("client")
        return None if client is None else (client, kind)


class Live:
    """The runs, the thread that asks them, and the routes of the page."""

    def __init__(self, paths: Sequence[Path], trust: bool = False) -> None:
        self.runs = Runs(paths, trust)
        self.worker = Worker()
        self._exact = Worker(MOST_EXACT)  # by the code of whatif, which does not come in pieces
        self._warm: set[int] = set()
        self.is_closed = False

    def begin(self) -> None:
        """Open the first run that can be, before anybody looks at the page."""
        number = next((i for i, offered in enumerate(self.runs.offered) if offered.error is None), None)
        if number is not None:
            self.worker.submit(self.opened(number), IDLE)

    def close(self) -> None:
        """Stop all work. What a thread is at ends first."""
        self.is_closed = True
        self.worker.close()
        self._exact.close()

    # Jobs

    def opened(self, number: int) -> Job:
        """Open a run, and have it warmed up while nothing else is asked."""
        session = self.runs.session(number)
        if number not in self._warm:
            self._warm.add(number)
            self.worker.submit(self._warming(number, session), IDLE)
        yield
        return session

    def _warming(self, number: int, session: Session) -> Job:
        try:
            for _ in session.warm():
                if not self.runs.keeps(session):
                    self._warm.discard(number)
                    return
                yield
        except UserError as error:
            self.runs.offered_run(number).fail(error)

    def about(self, question: Question) -> Job:
        """What the page needs to draw the controls of an arm."""
        session, offered = (yield from self.opened(question.run)), self.runs.offered_run(question.run)
        arm = question.text("arm", session.baseline) or session.baseline
        session.arm(Way(arm))
        yield
        knobs = knobs_of(session, arm)
        return {
            **offered.about(),
            "run": question.run,
            "seed": session.scenario.seed,
            "baseline": session.baseline,
            "arm": arm,
            "arms": list(session.specs),
            "knobs": [{**knob, "values": curve_values(knob)} for knob in knobs],
            "measures": {
                name: {
                    "label": measure.label,
                    "unit": measure.unit,
                    "meaning": measure.meaning,
                    "better": measure.better,
                    "is_near_zero": measure.is_signed_or_near_zero,
                }
                for name, measure in WHAT_IF_MEASURES.items()
            },
            "lead": WHAT_IF_REVENUE,
            "requests": session.n_requests,
            "sample": sum(len(session.block(index)) for index in session.sample),
            "is_log": session.sim.replay is not None,
            "has_budgets": session.has_budgets,
            "attribution": (offered.metrics.get("attribution") or {}).get(arm),
            "market": market_hours(offered.metrics),
        }

    def both(self, question: Question) -> Job:
        """The run, the way that is asked about, the blocks, and what both ways served of them."""
        session = yield from self.opened(question.run)
        way, against = question.ways(session)
        arm, base = session.arm(way), session.arm(against)
        blocks = session.blocks(question.flag("all"))
        today = yield from session.measured(base, blocks)
        then = yield from session.measured(arm, blocks)
        return session, way, blocks, then, today

    def answer(self, question: Question) -> Job:
        """Two ways to serve, on some of the requests or on all."""
        session, way, blocks, then, today = yield from self.both(question)
        return {
            **figures.answer(session, then, today, blocks),
            "command": command_line(session.folder, way, session.baseline) if way.words else None,
        }

    def curve(self, question: Question) -> Job:
        """A point for every value of a knob: first all on some requests, then all on all of them."""
        session = yield from self.opened(question.run)
        way, against = question.ways(session)
        path = question.text("knob") or ""
        knob = next((knob for knob in knobs_of(session, way.arm) if knob["path"] == path), None)
        if knob is None:
            raise UserError(f"no knob {path!r} that has a curve")
        base = session.arm(against)
        words = [word for word in way.words if word.partition("=")[0] != path]
        for is_all in (False, True):
            blocks = session.blocks(is_all)
            before = yield from session.measured(base, blocks)
            today = [before[index] for index in blocks]
            for value in curve_values(knob):
                point: dict[str, Any] = {"value": value, "is_all": is_all}
                try:
                    arm = session.arm(Way(way.arm, (*words, f"{path}={_word(value)}")))
                    pages = yield from session.measured(arm, blocks)
                    then = [pages[index] for index in blocks]
                    point["measures"] = figures.measures(session, then, today, blocks, CURVE_MEASURES)
                except UserError as error:
                    point["error"] = str(error)
                yield point
        return None

    def requests(self, question: Question) -> Job:
        """The browser of requests."""
        session, _, blocks, then, today = yield from self.both(question)
        wanted = browse.Filter(
            user=question.text("user"),
            ad=question.text("ad"),
            advertiser=question.text("advertiser"),
            least=question.number("least"),
            most=question.number("most"),
            changed=question.flag("changed"),
            sort=question.text("sort", "request") or "request",
        )
        return browse.find_requests(session, then, today, blocks, wanted, question.whole("offset", 0))

    def look(self, question: Question) -> Job:
        """One request, and the way of one ad."""
        session = yield from self.opened(question.run)
        way, against = question.ways(session)
        number = question.whole("request", 0)
        arm, base = session.arm(way), session.arm(against)
        return browse.look_at(session, arm, base, number, question.text("ad"))

    async def exact(self, question: Question) -> str:
        """whatif.json of the same question, byte for byte."""
        session = await asyncio.wrap_future(self.worker.submit(self.opened(question.run), SOON))
        way, _ = question.ways(session)
        job = self._exactly(session, way)
        return json_text(await asyncio.wrap_future(self._exact.submit(job, NOW, question.key("exact"))))

    def _exactly(self, session: Session, way: Way) -> Job:
        yield
        return session.exact(way, Wanted(self._exact.is_wanted))

    # Routes

    def app(self, door: Door) -> Gate:
        """The whole application."""

        def doing(job: Callable[[Question], Job], urgency: int) -> Callable[[Request], Awaitable[Response]]:
            async def handle(request: Request) -> Response:
                question = Question(request)
                level = LATER if urgency == NOW and question.flag("all") else urgency
                future = self.worker.submit(job(question), level, question.key(job.__name__))
                return _json(await asyncio.wrap_future(future))

            return _explained(handle)

        async def runs(request: Request) -> Response:
            return _json({"runs": self.runs.about()})

        async def side_by_side(request: Request) -> Response:
            return _json(await run_in_threadpool(self.runs.side_by_side))

        async def curve(request: Request) -> Response:
            return self._stream(Question(request))

        async def exact(request: Request) -> Response:
            text = await self.exact(Question(request))
            return Response(text, media_type="application/json")

        routes = [
            *(Route(path, _file(*file)) for path, file in FILES.items()),
            Route("/api/runs", _explained(runs)),
            Route("/api/compare", _explained(side_by_side)),
            Route("/api/about", doing(self.about, SOON)),
            Route("/api/answer", doing(self.answer, NOW)),
            Route("/api/requests", doing(self.requests, SOON)),
            Route("/api/look", doing(self.look, NOW)),
            Route("/api/curve", _explained(curve)),
            Route("/api/exact", _explained(exact)),
        ]

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            yield
            self.close()

        missing = {404: lambda request, error: _refuse("there is no such page", 404)}
        return Gate(Starlette(routes=routes, lifespan=lifespan, exception_handlers=missing), door)

    def _stream(self, question: Question) -> Response:
        """The lines of a job as they come."""
        loop, lines = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def tell(point: Any) -> None:
            loop.call_soon_threadsafe(lines.put_nowait, point)

        future = self.worker.submit(self.curve(question), LATER, question.key("curve"), tell)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(lines.put_nowait, None))

        async def text() -> AsyncIterator[str]:
            try:
                while (point := await lines.get()) is not None:
                    yield json.dumps(point, allow_nan=False) + "\n"
                error = None if future.cancelled() else future.exception()
                if error is not None and not isinstance(error, Stale):
                    yield json.dumps({"error": _words(error)}) + "\n"
            finally:
                future.cancel()  # who went away need not be answered

        return StreamingResponse(text(), media_type="application/x-ndjson")


def _explained(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The handler, with words and a status for all that may go wrong."""

    async def explained(request: Request) -> Response:
        try:
            return await handle(request)
        except UserError as error:
            return _refuse(shortened(str(error)), 400)
        except Stale:
            return _refuse("a newer question took its place", 409)
        except Busy:
            return _refuse("too many questions wait; ask again in a moment", 503)
        except asyncio.CancelledError:
            return _refuse("the server is being stopped", 503)
        except MemoryError:
            return _refuse("there is not enough memory for that", 507)
        except Exception as error:
            traceback.print_exception(error)
            return _refuse(_words(error), 500)

    return explained


def _words(error: BaseException) -> str:
    return shortened(str(error)) if isinstance(error, UserError) else "a defect; the terminal has the details"


def _json(content: Any) -> Response:
    return Response(json.dumps(content, allow_nan=False), media_type="application/json")


def _word(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return Response((HERE / name).read_bytes(), media_type=kind)

    return handle


def listening(host: str, port: int) -> socket.socket:
    """A socket at this address; UserError if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()  # whoever follows the printed address at once waits, and is not refused
    except (OSError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen at {host}:{port}: {why}; give another --port, or 0 for any") from None
    return listener


def serve_page(live: Live, door: Door, listener: socket.socket) -> None:
    """Answer until Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(
        live.app(door), log_level="warning", access_log=False, timeout_graceful_shutdown=1, ws="none",
        server_header=False, lifespan="on", h11_max_incomplete_event_size=64 * 1024,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listener])
