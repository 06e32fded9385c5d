"""What holds for all tests: which are run here, and how patient they are on a busy machine."""

from pathlib import Path

from hypothesis import HealthCheck, settings

# How fast this machine makes up values, beside everything else that it does, is not what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Cases that others wrote, with real Kyverno's answers, are run where they lie beside the project.
# Elsewhere there is nothing to compare with; conformance/test_presence.py says so in one line.
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
