"""The page's server: what may be asked, and in which order it is done.

Every question is a GET that changes nothing. Runs go by number, parameters by the words of `whatif --set`; no
path comes from outside. Who may ask is in `door`, how many and how slowly in `connections`.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cascade_sim.analysis.metrics.catalogue import AFTER_STEPS, after_step
from cascade_sim.analysis.report.guardrails import GUARDRAILS
from cascade_sim.analysis.report.readings import WHAT_IF_MEASURES, WHAT_IF_REVENUE, what_if_measures
from cascade_sim.foundation.errors import UserError, shortened
from cascade_sim.foundation.terminal import echo
from cascade_sim.live import browse, figures
from cascade_sim.live.access import AccessMiddleware, AccessPolicy, refuse
from cascade_sim.live.connections import PageServer
from cascade_sim.live.controls import curve_values, parameters_of
from cascade_sim.live.runs import Runs, command_line, market_days, market_hours
from cascade_sim.live.session import Session, Variant
from cascade_sim.live.work import IDLE, LATER, NOW, SOON, Busy, CancellableProgress, Job, Superseded, Worker
from cascade_sim.storage.folder import json_text

HERE = Path(__file__).parent
FILES = {
    "/": ("live.html", "text/html; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
    "/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
}
MAX_WORDS = 40  # parameters at a time
LONGEST = 2_000  # characters of a word
MAX_EXACT = 8  # exact answers that wait, of some seconds each
CURVE_MEASURES = (
    *(WHAT_IF_REVENUE, "revenue_per_request", "expected_ctr", "cpc", "rcs", "fill_rate"),
    *("welfare_vs_oracle", "expected_rpm"),
)


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
            raise UserError(f"{name}: expected an integer, found {text[:40]!r}")
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

    def ways(self, session: Session) -> tuple[Variant, Variant]:
        """The way with its parameters changed, and the arm that it is compared with."""
        words = self._request.query_params.getlist("set")
        if len(words) > MAX_WORDS or any(len(word) > LONGEST for word in words):
            raise UserError(
                f"at most {MAX_WORDS} parameters at a time, of at most {LONGEST:,} characters each"
            )
        arm = self.text("arm", session.baseline) or session.baseline
        against = self.text("against", arm) or arm
        return Variant(arm, tuple(words)), Variant(against)

    def key(self, kind: str) -> tuple[str, str] | None:
        """Whose question it is, of its kind: a newer one of the same takes its place."""
        client = self.text("client")
        return None if client is None else (client, kind)


class Live:
    """The runs, the thread that asks them, and the routes of the page."""

    def __init__(self, paths: Sequence[Path], trust: bool = False) -> None:
        self.runs = Runs(paths, trust)
        self.worker = Worker()
        self._exact = Worker(MAX_EXACT)  # by the code of whatif, which does not come in pieces
        self._warm: set[int] = set()
        self.is_closed = False

    def begin(self) -> None:
        """Open the first run that can be, before the page is requested; UserError if there is none."""
        for number, offered in enumerate(self.runs.offered):
            if offered.error is None:
                with suppress(UserError):
                    self.worker.submit(self.opened(number), IDLE).result()
                    return
        raise UserError("no run opens, so there is nothing to serve")

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
        except Exception as error:
            self.runs.offered_run(number).fail(error)

    def about(self, question: Question) -> Job:
        """What the page needs to draw the controls of an arm; a run that has none is damaged."""
        try:
            return (yield from self._about(question))
        except (UserError, GeneratorExit):
            raise
        except Exception as error:
            offered = self.runs.offered_run(question.run)
            offered.fail(error)
            raise UserError(offered.error) from error

    def _about(self, question: Question) -> Job:
        session, offered = (yield from self.opened(question.run)), self.runs.offered_run(question.run)
        arm = question.text("arm", session.baseline) or session.baseline
        session.arm(Variant(arm))
        yield
        parameters = parameters_of(session, arm)
        steps = session.specs[arm].pre_ranking.earlier
        names = [*WHAT_IF_MEASURES, *(after_step(name, step) for name in AFTER_STEPS for step in steps)]
        return {
            **offered.about(),
            "run": question.run,
            "seed": session.scenario.seed,
            "baseline": session.baseline,
            "arm": arm,
            "arms": list(session.specs),
            "stages": session.evaluation.baseline.stage_names,
            "parameters": [{**parameter, "values": curve_values(parameter)} for parameter in parameters],
            "measures": {
                name: {
                    "label": measure.label,
                    "unit": measure.unit,
                    "meaning": measure.meaning,
                    "better": measure.better,
                    "is_near_zero": measure.is_signed_or_near_zero,
                }
                for name, measure in what_if_measures(names).items()
            },
            "lead": WHAT_IF_REVENUE,
            "guardrails": [
                {"names": list(guardrail.names), "label": guardrail.label, "worse": guardrail.worse}
                for guardrail in GUARDRAILS
            ],
            "requests": session.n_requests,
            "sample": sum(len(session.block(index)) for index in session.sample),
            "is_log": not session.sim.environment.has("truth"),
            "has_budgets": session.has_budgets,
            "no_evidence": session.no_evidence,
            "attribution": (offered.metrics.get("attribution") or {}).get(arm),
            "market": market_hours(offered.metrics),
            "days": market_days(offered.metrics, session.scenario),
        }

    def both(self, question: Question, is_lenient: bool = False) -> Job:
        """The run, the way that is asked about, the blocks, and what both ways served of them.

        If lenient, mistyped words are left out, and named with the reasons.
        """
        session = yield from self.opened(question.run)
        way, against = question.ways(session)
        left_out: dict[str, str] = {}
        if is_lenient:
            way, left_out = session.without_mistyped(way)
        arm, base = session.arm(way), session.arm(against)
        blocks = session.blocks(question.flag("all"))
        current = yield from session.measured(base, blocks)
        variant = yield from session.measured(arm, blocks)
        return session, way, blocks, variant, current, left_out

    def answer(self, question: Question) -> Job:
        """Two ways to serve, on some of the requests or on all; a mistyped word does not block the others."""
        session, way, blocks, variant, current, left_out = yield from self.both(question, is_lenient=True)
        return {
            **figures.answer(session, variant, current, blocks),
            "left_out": [{"word": word, "why": shortened(why)} for word, why in left_out.items()],
            "command": command_line(session.folder, way, session.baseline) if way.words else None,
        }

    def curve(self, question: Question) -> Job:
        """A point for every value of a parameter: first all on some requests, then all on all of them."""
        session = yield from self.opened(question.run)
        way, against = question.ways(session)
        path = question.text("parameter") or ""
        parameter = next(
            (parameter for parameter in parameters_of(session, way.arm) if parameter["path"] == path), None
        )
        if parameter is None:
            raise UserError(f"no parameter {path!r} that has a curve")
        base = session.arm(against)
        words = [word for word in way.words if word.partition("=")[0] != path]
        for is_all in (False, True):
            blocks = session.blocks(is_all)
            before = yield from session.measured(base, blocks)
            current = [before[index] for index in blocks]
            for value in curve_values(parameter):
                point: dict[str, Any] = {"value": value, "is_all": is_all}
                try:
                    arm = session.arm(Variant(way.arm, (*words, f"{path}={_word(value)}")))
                    pages = yield from session.measured(arm, blocks)
                    variant = [pages[index] for index in blocks]
                    point["measures"] = figures.measures(session, variant, current, blocks, CURVE_MEASURES)
                except UserError as error:
                    point["error"] = str(error)
                yield point
        return None

    def requests(self, question: Question) -> Job:
        """The browser of requests."""
        session, _, blocks, variant, current, _ = yield from self.both(question)
        wanted = browse.Filter(
            user=question.text("user"),
            ad=question.text("ad"),
            advertiser=question.text("advertiser"),
            least=question.number("least"),
            most=question.number("most"),
            changed=question.flag("changed"),
            sort=question.text("sort", "request") or "request",
        )
        return browse.find_requests(session, variant, current, blocks, wanted, question.whole("offset", 0))

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

    def _exactly(self, session: Session, way: Variant) -> Job:
        yield
        return session.exact(way, CancellableProgress(self._exact.is_wanted))

    # Routes

    def app(self, door: AccessPolicy) -> AccessMiddleware:
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

        missing = {404: lambda request, error: refuse("there is no such page", 404)}
        return AccessMiddleware(Starlette(routes=routes, lifespan=lifespan, exception_handlers=missing), door)

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
                if error is not None and not isinstance(error, Superseded):
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
            return refuse(shortened(str(error)), 400)
        except Superseded:
            return refuse("a newer question took its place", 409)
        except Busy:
            return refuse("too many questions wait; ask again in a moment", 503)
        except asyncio.CancelledError:
            return refuse("the server is being stopped", 503)
        except MemoryError:
            return refuse("there is not enough memory for that", 507)
        except Exception as error:
            echo("".join(traceback.format_exception(error)), err=True)
            return refuse(_words(error), 500)

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
        listener.listen()  # a browser that follows the printed address at once waits, and is not refused
    except (OSError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen at {host}:{port}: {why}; give another --port, or 0 for any") from None
    return listener


def serve_page(live: Live, door: AccessPolicy, listener: socket.socket) -> None:
    """Answer until Ctrl-C."""
    PageServer(live.app(door)).run(sockets=[listener])
