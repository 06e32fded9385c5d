"""Operations that run something: script, command, sleep, and kubectl's own words."""

import os
import time
from pathlib import Path
from typing import Any

from chainsaw.case import Object
from chainsaw.durations import parse_seconds
from chainsaw.expressions import Bindings, fill, find_mismatches
from chainsaw.shell import Outcome, expand_variables, run_command
from chainsaw.surroundings import OperationFailedError, Surroundings, read_outputs

# Scripts of many kubectl calls take longer on a busy machine; nothing depends on a short limit.
MIN_SECONDS = 20.0


def run_script(at: Surroundings, operation: Object, bindings: Bindings) -> dict[str, Any]:
    """Run a script and check what it said."""
    shell = operation.get("shell") or "sh"
    words = [shell, *(operation.get("shellArgs") or ["-c"]), operation.get("content") or ""]
    return _run(at, operation, bindings, words)


def run_program(at: Surroundings, operation: Object, bindings: Bindings) -> dict[str, Any]:
    """Run a command and check what it said."""
    variables = _variables(at, operation, bindings)
    words = [expand_variables(word, variables) for word in operation.get("args") or ()]
    return _run(at, operation, bindings, [operation["entrypoint"], *words])


def _variables(at: Surroundings, operation: Object, bindings: Bindings) -> dict[str, str]:
    given = {each["name"]: fill(each["value"], bindings) for each in operation.get("env") or ()}
    return {**given, "NAMESPACE": at.namespace}


def _run(
    at: Surroundings, operation: Object, bindings: Bindings, words: list[str]
) -> dict[str, Any]:
    outcome = run_command(
        at.wrap(*words),
        folder=Path(os.path.join(at.folder, operation.get("workDir") or "")),
        environment={**at.environment, **_variables(at, operation, bindings)},
        seconds=max(at.seconds("exec", operation), MIN_SECONDS),
    )
    said = {"stdout": outcome.stdout, "stderr": outcome.stderr, "error": outcome.error}
    known = {**bindings, **said}
    check = operation.get("check")
    wrong = find_mismatches(check, None, known) if check is not None else []
    if wrong or (check is None and outcome.error):
        raise OperationFailedError(_describe(words, outcome, wrong))
    return read_outputs(operation, known, None)


def _describe(words: list[str], outcome: Outcome, wrong: list[str]) -> str:
    said = (outcome.stderr.strip() or outcome.stdout.strip())[-600:]
    reason = "; ".join(wrong) or outcome.error
    return f"`{words[-1].strip()[:200]}`: {reason}; it said: {said}"


def sleep(at: Surroundings, operation: Object, bindings: Bindings) -> dict[str, Any]:
    """Do nothing for a while."""
    time.sleep(parse_seconds(operation["duration"]))
    return {}


def wait(at: Surroundings, operation: Object, bindings: Bindings) -> dict[str, Any]:
    """Wait for a condition, a path or a deletion, as `kubectl wait` does."""
    goal = operation["for"]
    if "deletion" in goal:
        condition = "delete"
    elif "condition" in goal:
        wanted = goal["condition"]
        condition = f"condition={fill(wanted['name'], bindings)}"
        if wanted.get("value") is not None:
            condition += f"={fill(wanted['value'], bindings)}"
    else:
        wanted = goal["jsonPath"]
        condition = f"jsonpath={fill(wanted['path'], bindings)}"
        if wanted.get("value") is not None:
            condition += f"={fill(wanted['value'], bindings)}"
    limit = f"--timeout={at.seconds('exec', operation):.0f}s"
    words = ["wait", f"--for={condition}", *_select(at, operation, bindings), limit]
    return _run(at, operation, bindings, ["kubectl", *words])


def show(*verb: str) -> Any:
    """An operation that only prints, for people who read the log: its result is not judged."""

    def run(at: Surroundings, operation: Object, bindings: Bindings) -> dict[str, Any]:
        words = ["kubectl", *verb, *_select(at, operation, bindings)]
        run_command(
            at.wrap(*words), folder=at.folder, environment=at.environment, seconds=MIN_SECONDS
        )
        return {}

    return run


def _select(at: Surroundings, operation: Object, bindings: Bindings) -> list[str]:
    words = []
    kind = operation.get("kind") or operation.get("resource")
    if kind:
        group, slash, version = str(operation.get("apiVersion") or "").rpartition("/")
        words.append(f"{kind}.{version}.{group}" if slash else str(kind))
    if name := operation.get("name"):
        words.append(fill(name, bindings))
    elif selector := operation.get("selector"):
        words += ["-l", fill(selector, bindings)]
    elif kind:
        words.append("--all" if "for" in operation else "--ignore-not-found")
    return [*words, "-n", fill(operation.get("namespace") or at.namespace, bindings)]
