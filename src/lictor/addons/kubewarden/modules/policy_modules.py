"""The modules that policies in Wasm run: fetched beside other work; what is wrong with them."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from lictor.addons.kubewarden.modules.module_fetching import (
    AskedModules,
    FetchedModules,
    ModuleKey,
    OpenModules,
)
from lictor.addons.kubewarden.modules.server_modules import ServerBinding
from lictor.core.errors import LictorError, NotYetError
from lictor.core.model.program import Program
from lictor.policies.policy_compiler import PolicyCompiler


class _Fault(msgspec.Struct, frozen=True):
    """Why a policy answers every request with an error, and whether that may pass by itself."""

    reason: str
    may_pass: bool
    # Does the module run, and refuse its settings?
    is_in_settings: bool = False


class PolicyModules:
    """What is fetched for which policy; without `open_modules`, nothing is."""

    def __init__(self, open_modules: "OpenModules | None", note_news: Callable[[], None]) -> None:
        """`note_news` is called when a module has come, or will not come for now."""
        self._fetched: FetchedModules | None = None
        if open_modules is not None:
            self._fetched = FetchedModules(open_modules, _notify_from_threads(note_news))
        # By uid of a policy: the modules that it runs.
        self._asked: dict[str, set[ModuleKey]] = {}
        self._faults: dict[str, _Fault] = {}

    def find_fault(self, uid: str) -> str:
        """Why the programs of a policy answer with an error; empty where they do not."""
        fault = self._faults.get(uid)
        return fault.reason if fault is not None else ""

    def has_invalid_settings(self, uid: str) -> bool:
        """Are the settings of a policy what its module does not take?"""
        fault = self._faults.get(uid)
        return fault is not None and fault.is_in_settings

    def refuse(self, uid: str, reason: str) -> None:
        """Note that the server of a policy cannot run it."""
        self._faults[uid] = _Fault(reason, may_pass=False)

    def open_for(self, server: ServerBinding) -> AskedModules | None:
        """The modules for policies of a server; None where none are fetched here."""
        return None if self._fetched is None else AskedModules(self._fetched, server.sources)

    def prepare(self, uid: str, programs: tuple[Program, ...], modules: AskedModules) -> None:
        """Open what policies in Wasm run: not while a request waits for it."""
        has_run = False
        try:
            told = [program.prepare() for program in programs if program.prepare is not None]
            has_run = not modules.is_missing
        except NotYetError:
            raise
        except LictorError as error:
            told = [str(error)]
        finally:
            self._asked[uid] = modules.keys
        fault = next(filter(None, told), "")
        if fault:
            may_pass = modules.has_failed
            self._faults[uid] = _Fault(fault, may_pass=may_pass, is_in_settings=has_run)
        else:
            self._faults.pop(uid, None)

    def keep(self, compiler: PolicyCompiler, live: set[str]) -> None:
        """Forget other policies, and try those again that lack what may come."""
        if self._fetched is None:
            return
        self._asked = {uid: keys for uid, keys in self._asked.items() if uid in live}
        self._faults = {uid: fault for uid, fault in self._faults.items() if uid in live}
        self._fetched.keep(set().union(*self._asked.values()))
        for uid, fault in self._faults.items():
            if fault.may_pass and not compiler.made[uid].is_waiting:
                compiler.retry_after(uid, self._fetched.find_pause(self._asked.get(uid, set())))


def _notify_from_threads(listener: Callable[[], None]) -> Callable[[], None]:
    """The same, for whoever calls from another thread than that of the event loop."""
    loop = asyncio.get_running_loop()

    def call() -> None:
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(listener)

    return call
