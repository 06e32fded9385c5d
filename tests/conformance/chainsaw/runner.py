"""Runs a test as chainsaw does: steps in order, then everything that was made is deleted."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from chainsaw.api import Api, ApiError, Key, NotFoundError
from chainsaw.case import Case, Step
from chainsaw.expressions import Bindings, ExpressionError, bind_all
from chainsaw.operations import describe_operation, run_operation
from chainsaw.surroundings import OperationFailedError, Surroundings

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_NAMESPACE_PATIENCE = 60.0
# What these tests apply is signed by the keys that they name: nothing of it may be changed.
_SIGNED = ("verify-manifests",)


@dataclass(frozen=True)
class Result:
    """How a test went; the reason names the first operation that failed."""

    path: str
    status: str
    seconds: float
    reason: str = ""


@dataclass
class Runner:
    """Runs tests on one cluster. Namespaces that are going are waited for only by who needs them."""

    api: Api
    wrap: Callable[..., list[str]]
    environment: Mapping[str, str]
    longest: float | None = None
    """No operation waits longer than this; for quick looks at many failures."""
    delays: bool = False
    """Whether to wait before cleaning up where the settings say so."""
    rewrite: Callable[[Any], Any] = lambda body: body
    """Changes each object of a test before it is used."""
    _leaving: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, case: Case) -> Result:
        """Run a test; never raises for what the test itself does."""
        started = time.monotonic()
        if case.skip:
            return Result(case.path, SKIPPED, 0.0, "the test says so")
        if case.fault:
            return Result(case.path, FAILED, 0.0, f"the test cannot be read: {case.fault}")
        try:
            self._wait_for_names(case)
            reasons = _Run(self, case).run()
        except (ApiError, ExpressionError, OperationFailedError, TimeoutError) as error:
            reasons = [f"set-up: {error}"]
        seconds = time.monotonic() - started
        if reasons:
            return Result(case.path, FAILED, seconds, reasons[0])
        return Result(case.path, PASSED, seconds)

    def leave(self, namespace: str) -> None:
        """Delete a namespace without waiting: that takes seconds, and few need its name again."""
        self.api.delete(Key("v1", "Namespace", "", namespace))
        with self._lock:
            self._leaving[namespace] = time.monotonic() + _NAMESPACE_PATIENCE

    def _wait_for_names(self, case: Case) -> None:
        with self._lock:
            leaving = dict(self._leaving)
        if not leaving:
            return
        text = "\n".join(
            file.read_text(encoding="utf-8", errors="replace")
            for file in case.folder.rglob("*")
            if file.is_file()
        )
        for name, deadline in leaving.items():
            # A name of our own making is used once.
            if not name.startswith("chainsaw-") and name in text:
                self.api.wait_gone(Key("v1", "Namespace", "", name), deadline)
                with self._lock:
                    self._leaving.pop(name, None)


class _Run:
    """One run of one test."""

    def __init__(self, runner: Runner, case: Case) -> None:
        self._runner = runner
        self._case = case
        self._reasons: list[str] = []
        self._steps: list[tuple[Step, Surroundings, Bindings]] = []

    def run(self) -> list[str]:
        """The reasons of failure, the first first; none where all went well."""
        case = self._case
        name = case.namespace or f"chainsaw-{secrets.token_hex(4)}"
        with self._namespace(name):
            test = {"id": 1, "metadata": {"name": case.name}}
            bindings: Bindings = {"namespace": name, "test": test, "values": {}}
            try:
                bindings = bind_all(bindings, case.bindings)
                for at, step in enumerate(case.steps):
                    known = {**bindings, "step": {"id": at + 1}}
                    if not self._run_step(step, self._surround(step, name), known):
                        break
            finally:
                self._clean_up()
        return self._reasons

    def _surround(self, step: Step, namespace: str) -> Surroundings:
        settings = self._case.settings
        templating = settings.templating if step.templating is None else step.templating
        return Surroundings(
            api=self._runner.api,
            folder=self._case.folder,
            namespace=namespace,
            wrap=self._runner.wrap,
            environment=self._runner.environment,
            timeouts={**settings.timeouts, **step.timeouts},
            templating=templating,
            grace=settings.grace,
            longest=self._runner.longest,
            rewrite=(lambda body: body) if self._case.group in _SIGNED else self._runner.rewrite,
        )

    @contextmanager
    def _namespace(self, name: str) -> Iterator[None]:
        """The test's own namespace; one that is there already stays."""
        api = self._runner.api
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            api.get(Key("v1", "Namespace", "", name))
            made = False
        except NotFoundError:
            api.create(body)
            made = True
        try:
            yield
        finally:
            if made:
                self._attempt("cleanup", lambda: self._delete(Key("v1", "Namespace", "", name), 0))

    def _run_step(self, step: Step, at: Surroundings, bindings: Bindings) -> bool:
        """Whether the test goes on after this step."""
        self._steps.append((step, at, bindings))
        try:
            known = bind_all(bindings, step.bindings)
        except ExpressionError as fault:
            self._reasons.append(f"{step.name}: bindings: {fault}")
            return False
        went_well, known = self._try_all(step, at, known)
        if self._reasons:
            self._run_all(step, step.catches, at, known, judged=False)
        self._run_all(step, step.finallies, at, known, judged=True)
        return went_well

    def _try_all(self, step: Step, at: Surroundings, known: Bindings) -> tuple[bool, Bindings]:
        for number, entry in enumerate(step.tries):
            info = {"id": number + 1, "resourceId": 1}
            try:
                known = {**known, **run_operation(at, entry, {**known, "operation": info})}
            except OperationFailedError as fault:
                self._reasons.append(f"{step.name}: {describe_operation(entry)}: {fault}")
                if not entry.get("continueOnError"):
                    return False, known
        return True, known

    def _run_all(
        self, step: Step, entries: Any, at: Surroundings, known: Bindings, *, judged: bool
    ) -> None:
        for entry in entries:
            try:
                known = {**known, **run_operation(at, entry, known)}
            except OperationFailedError as fault:
                if judged:
                    self._reasons.append(f"{step.name}: {describe_operation(entry)}: {fault}")

    def _clean_up(self) -> None:
        """Delete what the steps made, the last first, then run their own clean-up."""
        for step, at, bindings in reversed(self._steps):
            if self._runner.delays and at.created:
                time.sleep(self._case.settings.delay_before_cleanup)
            for key in reversed(at.created):
                seconds = at.timeouts["cleanup"]
                self._attempt(
                    f"cleanup of {step.name}",
                    lambda k=key, s=seconds: self._delete(k, s),  # type: ignore[misc]
                )
            self._run_all(step, step.cleanups, replace(at, created=[]), bindings, judged=True)

    def _delete(self, key: Key, seconds: float) -> None:
        try:
            if key.kind == "Namespace" and key.version == "v1":
                self._runner.leave(key.name)
            else:
                self._runner.api.delete(key)
                self._runner.api.wait_gone(key, time.monotonic() + seconds)
        except NotFoundError:
            pass

    def _attempt(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except (ApiError, TimeoutError) as error:
            self._reasons.append(f"{what}: {error}")
