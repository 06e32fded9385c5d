"""The options of a policy server: one field for each flag."""

from pathlib import Path

import msgspec

from lictor.core.lang.wasm_records import GuestLimits


class PolicyServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """From the command line and the environment."""

    policies: Path
    address: str = "0.0.0.0"  # noqa: S104  (as policy-server: a Pod has no other way in)
    port: int = 3000
    readiness_port: int = 8081
    # 0: none.
    metrics_port: int = 0
    # 0: one for each core of the CPU quota.
    workers: int = 0
    certificate: Path | None = None
    key: Path | None = None
    client_authorities: tuple[Path, ...] = ()
    download_folder: Path | None = None
    sources: Path | None = None
    verification: Path | None = None
    sigstore_trust: Path | None = None
    docker_config: Path | None = None
    # None: policies may run for ever.
    seconds: float | None = 2.0
    continues_on_errors: bool = False
    accepted_namespace: str = ""
    ignores_missing_cluster: bool = False
    # OTLP, to the endpoint in the usual variables of OpenTelemetry.
    sends_metrics: bool = False
    sends_traces: bool = False
    # Of all processes together, such as 512Mi; empty: that of the container.
    memory_limit: str = ""
    # A process without a turn of its loop for so long is replaced.
    patience: float = 8.0

    @property
    def limits(self) -> GuestLimits:
        """The time limit of one evaluation, if its policy has none."""
        return GuestLimits(seconds=self.seconds)
