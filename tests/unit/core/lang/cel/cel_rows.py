"""Evaluates an expression for a row of a table."""

from lictor.core.lang.cel.faults import CelCompileError, CelError
from lictor.core.lang.cel.kubernetes import build_kubernetes as kubernetes_environment
from lictor.core.lang.cel.kyverno import LATEST, kyverno_environment
from lictor.core.lang.cel.types import DYN

OBJECT = {
    "name": "web",
    "replicas": 3,
    "ratio": 1.5,
    "labels": {"app": "shop", "a/b": "x"},
    "ports": [80, 443],
    "mixed": [1, "a", None],
    "nothing": None,
}
NAMES = dict.fromkeys(("object", "params"), DYN)
KUBERNETES = kubernetes_environment().extend(NAMES)
KYVERNO = kyverno_environment(version=LATEST).extend(NAMES)
# What a row expects instead of a value.
REFUSED, FAILS = object(), object()


def evaluate(text, environment=KUBERNETES):
    try:
        program = environment.compile(text)
    except CelCompileError:
        return REFUSED
    try:
        return program.evaluate({"object": OBJECT})
    except CelError:
        return FAILS
