"""Settings of all tests: signals, Hypothesis, and which files are collected."""

import signal
from pathlib import Path

from hypothesis import HealthCheck, settings

# A shell without job control starts background commands with SIGINT ignored, and every process that a
# test starts inherits this: `make test &` would wait for servers that do not react to SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The speed at which Hypothesis generates values on a busy machine is not under test.
settings.register_profile(
    "no-deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("no-deadline")

# Recorded answers of Kyverno and others are used where they are stored beside the project.
# Elsewhere conformance/test_presence.py reports in one line that they are missing.
_NEED_CASES = (
    "test_admission_tables.py",
    "test_golden.py",
    "test_host_calls_corpus.py",
    "test_images.py",
    "test_kwctl.py",
    "test_module_artifacts.py",
    "test_policy_server.py",
    "test_rego_wasm.py",
    "test_suites.py",
)
collect_ignore = (
    []
    if (Path(__file__).parents[2] / "shared" / "conformance").is_dir()
    else [f"conformance/{name}" for name in _NEED_CASES]
)
