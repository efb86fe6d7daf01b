"""Ray, on this machine or on a cluster: `pip install 'cascade_sim[ray]'`.

Without an address a Ray of one's own is started and ended with the work. It listens on the loopback alone and
asks for a secret token: any process that reaches a Ray without one can run code in it. With an address
the cluster there is used (docs/scale.md): code travels, worlds are built there from their scenario and seed,
results lie in a folder that all machines see.

Deaths are counted here, not by Ray: a job or a chunk whose workers died three times is named.
"""

from __future__ import annotations

import copy
import logging
import os
import secrets
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from cascade_sim.engines import Chunk, Service
from cascade_sim.engines.runtime_env import pack
from cascade_sim.foundation.errors import Notice, UserError
from cascade_sim.foundation.workers import (
    TRIES,
    Answer,
    Job,
    answer_of,
    failure_message,
    require_names,
    unpacked,
    usable_cores,
)
from cascade_sim.storage.code_version import source_digest
from cascade_sim.storage.environment import stack, stack_notes
from cascade_sim.storage.files import discard, folder_inside, storage_errors, temporary
from cascade_sim.storage.model_store import FOLDER_VARIABLE
from cascade_sim.version import SEMANTICS

INSTALL = "pip install 'cascade_sim[ray]'"
UNDER_WAY = 2  # tasks of chunks for each CPU: one at work, one at hand
OBJECT_STORE = 256 << 20  # bytes; results on the way, of one machine's own Ray

# What Ray does unless it is told otherwise: report home, listen to the network, let any process in. The third
# name is what makes it keep 127.0.0.1, which it otherwise replaces by the address on the network.
ALONE = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
ALWAYS = {"RAY_USAGE_STATS_ENABLED": "0"}
LOOPBACK = "127.0.0.1"


class OnRay:
    """Work as tasks of Ray, each on one CPU."""

    is_elsewhere = True

    def __init__(self, address: str | None = None, files: Sequence[Path] = ()) -> None:
        self._address, self._files = address, files
        self.is_far = address is not None
        self._open = ExitStack()

    def __enter__(self) -> OnRay:
        with ExitStack() as opening:
            opening.enter_context(_environment(ALWAYS if self._address else {**ALWAYS, **ALONE, **_token()}))
            ray = _ray()
            _read_again(opening, alone=self._address is None)
            settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            if self._address is None:
                settings |= {
                    "address": "local", "_node_ip_address": LOOPBACK, "num_cpus": usable_cores(),
                    "include_dashboard": False, "object_store_memory": OBJECT_STORE,
                    "runtime_env": {"env_vars": {"PYTHONPATH": _module_folders()}},
                }  # fmt: skip
            else:
                trunk = Path(opening.enter_context(tempfile.TemporaryDirectory()))
                package, work = pack(trunk, self._files)
                cache = os.environ.get(FOLDER_VARIABLE)
                settings |= {
                    "address": self._address,
                    "runtime_env": {
                        "py_modules": [str(package)],
                        "working_dir": str(work),
                        "env_vars": {FOLDER_VARIABLE: os.path.abspath(cache)} if cache else {},
                    },
                }
            try:
                ray.init(**settings)
            except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
                where = f"--address {self._address}" if self._address else "--engine ray"
                raise UserError(f"{where}: Ray does not start: {_first_line(error)}") from error
            opening.callback(ray.shutdown)
            if self._address is None and {node["NodeManagerAddress"] for node in ray.nodes()} != {LOOPBACK}:
                raise UserError("--engine ray: Ray listens to the network although it was told not to")
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def place(self, folder: Path) -> Path:
        """Its whole path: those who do the work may be in another working folder."""
        return folder.absolute()

    def require_folder(self, *folders: Path) -> None:
        """Asks every machine of the cluster, before any work. One's own Ray has nothing to ask."""
        if self._address is None or not folders:
            return
        ray = _ray()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        with ExitStack() as seen:
            marks = [_mark(folder, seen) for folder in {folder.parent for folder in folders}]
            nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in _working(ray.nodes())}
            look = ray.remote(max_retries=0, num_cpus=1)(_look)
            asked = {
                node: look.options(
                    scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
                ).remote([str(mark) for mark in marks])
                for node in nodes
            }
            told = {}
            for node, ref in asked.items():
                host = nodes[node]
                try:
                    told[host] = unpacked(f"machine {host}", ray.get(ref))
                except ray.exceptions.RayError as error:
                    if node in {alive["NodeID"] for alive in _working(ray.nodes())}:
                        raise UserError(f"machine {host} cannot do the work: {_first_line(error)}") from error
            if not told:
                raise UserError(f"--address {self._address}: no machine of this cluster has a CPU for tasks")
        _check_machines(_look([]), told, marks)

    def jobs(
        self,
        jobs: Sequence[Job],
        workers: int,
        *,
        on_done: Callable[[str], None] = lambda name: None,
        go_on: str = "",
    ) -> dict[str, Any]:
        require_names(jobs, workers)
        ray = _ray()
        do = ray.remote(max_retries=0, num_cpus=1)(_do)
        at_once = len(jobs) if self._address else workers
        waiting, under_way = deque(_Task(job.name, job) for job in jobs), _UnderWay()
        results: dict[str, Any] = {}
        given_up: dict[str, str] = {}
        try:
            while waiting or under_way.tasks:
                while waiting and len(under_way.tasks) < at_once:
                    task = waiting.popleft()
                    job = task.content
                    under_way.tasks[do.remote(job.function, job.arguments, job.options)] = task
                for ref in ray.wait(list(under_way.tasks), num_returns=1)[0]:
                    task = under_way.tasks.pop(ref)
                    death, answer = _fetched(ref)
                    if death:
                        task.deaths.append(death)
                        if len(task.deaths) < TRIES:
                            waiting.appendleft(task)
                        else:
                            given_up[task.name] = death
                        continue
                    results[task.name] = unpacked(task.name, answer)
                    on_done(task.name)
        finally:
            under_way.cancel()
        if given_up:
            raise UserError(failure_message(given_up, len(results), go_on))
        return {job.name: results[job.name] for job in jobs}

    def chunks(self, service: Service, chunks: Iterable[Chunk], workers: int) -> Iterator[tuple[Chunk, Any]]:
        """Tasks of a few chunks each, finished in any order and handed on in theirs."""
        if service.elsewhere is None:
            raise ValueError("these chunks can be served in this process only")
        ray = _ray()
        key, job = secrets.token_hex(8), service.elsewhere
        made = ray.put((job.function, job.arguments, job.options))
        serve = ray.remote(max_retries=0, num_cpus=1)(_serve)
        cpus = workers if self._address is None else int(ray.cluster_resources().get("CPU", 1))
        under_way, order = _UnderWay(), deque[Any]()
        left, sent = iter(chunks), 0

        def send(task: _Task) -> Any:
            ref = serve.remote(key, made, [chunk.spec for chunk in task.content])
            under_way.tasks[ref] = task
            return ref

        def taken() -> Iterator[tuple[Chunk, Any]]:
            while True:
                ref = order.popleft()
                task = under_way.tasks.pop(ref)
                death, answer = _fetched(ref)
                if not death:
                    # Ray's arrays are read-only; compiled code would be compiled a second time for them.
                    yield from zip(task.content, copy.deepcopy(unpacked(task.name, answer)), strict=True)
                    return
                task.deaths.append(death)
                if len(task.deaths) == TRIES:
                    raise UserError(f"{task.name} died three times: {death}")
                order.appendleft(send(task))

        try:
            while bundle := list(islice(left, service.per_task)):
                name = f"{job.name}, chunks {sent} to {sent + len(bundle) - 1}"
                order.append(send(_Task(name, bundle)))
                sent += len(bundle)
                if len(order) >= UNDER_WAY * cpus:
                    yield from taken()
            while order:
                yield from taken()
        finally:
            under_way.cancel()


@dataclass
class _Task:
    """What was sent, and how those who were at it died."""

    name: str
    content: Any
    deaths: list[str] = field(default_factory=list)


@dataclass
class _UnderWay:
    tasks: dict[Any, _Task] = field(default_factory=dict)

    def cancel(self) -> None:
        """End what is still at work, whether or not its worker is in the mood to stop."""
        ray = _ray()
        for ref in self.tasks:
            with suppress(ray.exceptions.RayError, ValueError):
                ray.cancel(ref, force=True)
        self.tasks.clear()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--engine ray needs Ray: {INSTALL} ({error})") from error
    return ray


def _read_again(undo: ExitStack, *, alone: bool) -> None:
    """What Ray read from the environment when it was imported, which may have been before it was set."""
    inside: Any = import_module("ray._raylet")  # compiled: a type checker sees nothing of it
    constants: Any = import_module("ray._private.ray_constants")
    inside.Config.initialize("")
    inside.AuthenticationTokenLoader.instance().reset_cache()
    if alone:
        undo.callback(setattr, constants, "ENABLE_RAY_CLUSTER", constants.ENABLE_RAY_CLUSTER)
        constants.ENABLE_RAY_CLUSTER = False


def _module_folders() -> str:
    """Where this process finds modules; of these Ray would hand on the first two."""
    return os.pathsep.join(map(os.path.abspath, sys.path))


def _token() -> dict[str, str]:
    """A token for those whom this process starts; who set one already has a reason."""
    return {} if os.environ.get("RAY_AUTH_TOKEN") else {"RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _environment(values: Mapping[str, str]) -> ExitStack:
    """These variables until the end; Ray and the processes it starts read them."""
    undo = ExitStack()
    for name, value in values.items():
        before = os.environ.get(name)
        undo.callback(_set, name, before)
        _set(name, value)
    return undo


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _fetched(ref: Any) -> tuple[str, Answer]:
    """("", the answer) of a task that has ended, or (how its worker died, nothing)."""
    ray = _ray()
    errors = ray.exceptions
    try:
        return "", ray.get(ref)
    except errors.OutOfMemoryError:
        death = "killed by Ray for want of memory"
    except errors.NodeDiedError:
        death = "its machine died"
    except errors.ObjectLostError:
        death = "its result was lost with its machine"
    except errors.LocalRayletDiedError:
        death = "Ray died on its machine"
    except errors.WorkerCrashedError:
        death = "its process was killed or ended itself"
    except errors.RayTaskError as error:  # an answer that cannot be sent, or the code is not there
        return "", ("failed", (_first_line(error.cause or error), str(error)))
    except errors.RuntimeEnvSetupError as error:
        raise UserError(f"the code could not travel to a machine: {_first_line(error)}") from error
    return death, ("died", None)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _working(nodes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that are alive and take tasks."""
    return [node for node in nodes if node["Alive"] and node["Resources"].get("CPU")]


def _mark(folder: Path, undo: ExitStack) -> Path:
    """A file of a name that cannot be guessed, for others to look for; gone with `undo`."""
    folder_inside(folder.parent, folder.name)
    with storage_errors(folder):
        mark = temporary(folder / "seen")
    undo.callback(discard, mark)
    return mark


# What follows is done by Ray's workers.


def _do(function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Answer:
    return answer_of(function, arguments, options)


_served: dict[str, Callable[..., Any]] = {}  # the service of this process, by its key


def _serve(key: str, made: tuple[Any, Any, Any], words: Sequence[tuple[Any, ...]]) -> Answer:
    """Serve chunks one by one, with what the first call of this key made in this process."""

    def served() -> list[Any]:
        if key not in _served:
            _served.clear()
            function, arguments, options = made
            _served[key] = function(*arguments, **options)
        return [_served[key](*words_of_one) for words_of_one in words]

    return answer_of(served, (), {})


def _look(marks: Sequence[str]) -> Answer:
    """What a machine is like, and which of the marks it does not see."""

    def looked() -> dict[str, Any]:
        return {
            "host": socket.gethostname(), "semantics": SEMANTICS, "code": source_digest(), **stack(),
            "unseen": [mark for mark in marks if not Path(mark).is_file()],
        }  # fmt: skip

    return answer_of(looked, (), {})


def _check_machines(here: Answer, told: Mapping[str, Mapping[str, Any]], marks: Sequence[Path]) -> None:
    """UserError where a machine would leave other results, or leave them where they are not found."""
    import warnings

    own = unpacked("this machine", here)
    for host, machine in told.items():
        if machine["unseen"]:
            folder = Path(machine["unseen"][0]).parent
            raise UserError(
                f"machine {host} does not see {folder}: results lie in a folder that all machines share; "
                "give one with --out"
            )
        if (machine["semantics"], machine["code"]) != (own["semantics"], own["code"]):
            raise UserError(f"machine {host} runs another version of cascade_sim than this one")
        notes = stack_notes({"packages": own["packages"]}, {"packages": machine["packages"]})
        if notes:
            raise UserError(f"machine {host}: results would be {notes[0]}; install the same versions there")
        for note in stack_notes({"processor": own["processor"]}, {"processor": machine["processor"]}):
            warnings.warn(
                f"machine {host}: its results are {note}: they may differ in their last digits",
                Notice, stacklevel=3,
            )  # fmt: skip
