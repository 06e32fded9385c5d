"""One input, one trial: made from its seed, run under a watch, judged."""

import resource
import signal
import traceback
from dataclasses import dataclass
from types import FrameType

from sameness import are_same
from strategies.source import Source
from targets import Parts, Target

# Time of the processor, not of the clock: on a busy machine a second passes without any work.
LIMIT_SECONDS = 1.0
LIMIT_KILOBYTES = 400_000
_MAX_SHOWN = 6000


class HangError(BaseException):
    """An input that takes too long. No Exception, so that nothing in the house can swallow it."""


@dataclass(frozen=True)
class Failure:
    """An input that broke something, with all that is needed to try it again."""

    target: str
    seed: str
    reason: str
    parts: str

    @property
    def fault(self) -> str:
        """Where it broke, so that one bug is told once however many inputs find it."""
        lines = self.reason.splitlines()
        places = [line for line in lines if line.startswith("  File ") and __file__ not in line]
        kind = self.reason.rstrip().rpartition("\n")[2].partition(":")[0]
        return f"{places[-1] if places else self.target} {kind}"

    def __str__(self) -> str:
        return (
            f"--- {self.target}, seed {self.seed}\n{self.parts}\n{self.reason}\n"
            f"again: python tools/fuzz/run_fuzz.py --again {self.target} {self.seed}"
        )


def make_parts(target: Target, seed: str) -> Parts:
    """The input of a target for a seed."""
    return target.make(Source(f"{target.name}:{seed}"))


def watch_time() -> None:
    """Let the timer that `try_input` sets end a trial; once per process."""
    signal.signal(signal.SIGPROF, _ring)


def _ring(number: int, frame: FrameType | None) -> None:
    raise HangError(f"more than {LIMIT_SECONDS} s of processor time")


def try_input(target: Target, seed: str) -> Failure | None:
    """Run a target on the input of a seed; None where all is well."""
    parts = make_parts(target, seed)
    reason = _run(target, parts)
    if reason is None and not are_same(parts, make_parts(target, seed)):
        reason = "the input was changed in place"
    return None if reason is None else Failure(target.name, seed, reason, show_parts(parts))


def _run(target: Target, parts: Parts) -> str | None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
    try:
        target.run(**parts)
    except target.allowed:
        pass
    except (Exception, HangError):  # noqa: BLE001  (whatever it is, it is what we look for)
        return traceback.format_exc(limit=-25)[-_MAX_SHOWN:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    return f"took {grown // 1024} MiB of memory" if grown > LIMIT_KILOBYTES else None


def show_parts(parts: Parts) -> str:
    """The input as text, as far as it can be shown."""
    lines = []
    for name, part in parts.items():
        try:
            shown = repr(part)
        except (ValueError, RecursionError) as error:
            shown = f"(cannot be shown: {error})"
        lines.append(f"{name}: {shown[:_MAX_SHOWN]}".encode("utf-8", "backslashreplace").decode())
    return "\n".join(lines)
