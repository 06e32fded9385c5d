"""Decodes the pod of a resource: the fields of the Pod Security Standards, typed."""

from typing import Annotated, TypeAlias

import msgspec

from lictor.core.errors import EvaluationError
from lictor.core.raw import Json
from lictor.core.records import convert_record

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Texts: TypeAlias = dict[str, str] | None
Quantities: TypeAlias = dict[str, str | int | float | None] | None


# More fields than the checks read: the API server rejects a number where it requires a string,
# so this is an error here too, and never a pass.
class PodField(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A part of a pod; undeclared fields are ignored."""


class Capabilities(PodField, frozen=True):
    """Linux capabilities that a container adds and drops."""

    add: list[str] | None = None
    drop: list[str] | None = None


class Profile(PodField, frozen=True):
    """A seccomp or an AppArmor profile."""

    type: str | None = None
    localhost_profile: str | None = None


class SELinuxOptions(PodField, frozen=True):
    """The SELinux context of a container or pod."""

    type: str | None = None
    user: str | None = None
    role: str | None = None
    level: str | None = None


class WindowsOptions(PodField, frozen=True):
    """The Windows options of a security context."""

    host_process: bool | None = None
    run_as_user_name: str | None = None


class Sysctl(PodField, frozen=True):
    """A kernel parameter."""

    name: str | None = None
    value: str | None = None


class SecurityContext(PodField, frozen=True):
    """The security settings of a container, or of a pod for all of its containers."""

    privileged: bool | None = None
    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None
    proc_mount: str | None = None
    read_only_root_filesystem: bool | None = None
    run_as_non_root: bool | None = None
    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    seccomp_profile: Profile | None = None
    app_armor_profile: Profile | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsOptions | None = None


class PodSecurityContext(PodField, frozen=True):
    """The security context of the pod itself."""

    run_as_non_root: bool | None = None
    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    fs_group: Int64 | None = None
    supplemental_groups: list[Int64] | None = None
    sysctls: list[Sysctl] | None = None
    seccomp_profile: Profile | None = None
    app_armor_profile: Profile | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsOptions | None = None


class Endpoint(PodField, frozen=True):
    """Where a probe or a handler connects to."""

    host: str | None = None
    path: str | None = None
    port: Int32 | str | None = None


class ProbeHandler(PodField, frozen=True):
    """A probe or a lifecycle hook of a container."""

    http_get: Endpoint | None = None
    tcp_socket: Endpoint | None = None
    initial_delay_seconds: Int32 | None = None
    period_seconds: Int32 | None = None
    timeout_seconds: Int32 | None = None
    failure_threshold: Int32 | None = None
    success_threshold: Int32 | None = None


class Lifecycle(PodField, frozen=True):
    """The lifecycle hooks of a container."""

    post_start: ProbeHandler | None = None
    pre_stop: ProbeHandler | None = None


class Port(PodField, frozen=True):
    """A port that a container opens."""

    name: str | None = None
    container_port: Int32 | None = None
    host_port: Int32 | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class EnvironmentVariable(PodField, frozen=True):
    """An environment variable."""

    name: str | None = None
    value: str | None = None


class Resources(PodField, frozen=True):
    """The resource requests and limits of a container."""

    limits: Quantities = None
    requests: Quantities = None


class VolumeMount(PodField, frozen=True):
    """A mount of a volume in a container."""

    name: str | None = None
    mount_path: str | None = None
    sub_path: str | None = None
    read_only: bool | None = None


class PodContainer(PodField, frozen=True):
    """A container of any of the three lists."""

    name: str = ""
    image: str | None = None
    image_pull_policy: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    security_context: SecurityContext | None = None
    ports: list[Port] | None = None
    env: list[EnvironmentVariable] | None = None
    resources: Resources | None = None
    volume_mounts: list[VolumeMount] | None = None
    liveness_probe: ProbeHandler | None = None
    readiness_probe: ProbeHandler | None = None
    startup_probe: ProbeHandler | None = None
    lifecycle: Lifecycle | None = None
    stdin: bool | None = None
    tty: bool | None = None


class VolumeSource(PodField, frozen=True):
    """Any source of a volume."""


class HostPath(PodField, frozen=True):
    """A folder of the node."""

    path: str = ""
    type: str | None = None


class Volume(PodField, frozen=True):
    """A volume: should have exactly one source."""

    name: str = ""
    host_path: HostPath | None = None
    config_map: VolumeSource | None = None
    csi: VolumeSource | None = None
    downward_api: VolumeSource | None = msgspec.field(default=None, name="downwardAPI")
    empty_dir: VolumeSource | None = None
    ephemeral: VolumeSource | None = None
    image: VolumeSource | None = None
    persistent_volume_claim: VolumeSource | None = None
    projected: VolumeSource | None = None
    secret: VolumeSource | None = None
    gce_persistent_disk: VolumeSource | None = None
    aws_elastic_block_store: VolumeSource | None = None
    git_repo: VolumeSource | None = None
    nfs: VolumeSource | None = None
    iscsi: VolumeSource | None = None
    glusterfs: VolumeSource | None = None
    rbd: VolumeSource | None = None
    flex_volume: VolumeSource | None = None
    cinder: VolumeSource | None = None
    cephfs: VolumeSource | None = None
    flocker: VolumeSource | None = None
    fc: VolumeSource | None = None
    azure_file: VolumeSource | None = None
    vsphere_volume: VolumeSource | None = None
    quobyte: VolumeSource | None = None
    azure_disk: VolumeSource | None = None
    photon_persistent_disk: VolumeSource | None = None
    portworx_volume: VolumeSource | None = None
    scale_io: VolumeSource | None = msgspec.field(default=None, name="scaleIO")
    storageos: VolumeSource | None = None


class OperatingSystem(PodField, frozen=True):
    """The operating system of the pod."""

    name: str | None = None


class PodSpec(PodField, frozen=True):
    """The spec of a pod."""

    containers: list[PodContainer] | None = None
    init_containers: list[PodContainer] | None = None
    ephemeral_containers: list[PodContainer] | None = None
    volumes: list[Volume] | None = None
    security_context: PodSecurityContext | None = None
    host_network: bool | None = None
    host_pid: bool | None = msgspec.field(default=None, name="hostPID")
    host_ipc: bool | None = msgspec.field(default=None, name="hostIPC")
    host_users: bool | None = None
    os: OperatingSystem | None = None
    share_process_namespace: bool | None = None
    service_account_name: str | None = None
    automount_service_account_token: bool | None = None
    node_name: str | None = None
    node_selector: Texts = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    restart_policy: str | None = None
    runtime_class_name: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None


class PodMetadata(PodField, frozen=True):
    """Names, labels and annotations."""

    name: str | None = None
    namespace: str | None = None
    labels: Texts = None
    annotations: Texts = None


class Pod(PodField, frozen=True):
    """A pod, or the template of one."""

    metadata: PodMetadata | None = None
    spec: PodSpec | None = None


class WorkloadSpec(PodField, frozen=True):
    """The part of a Deployment, DaemonSet, StatefulSet, Job, ... that creates pods."""

    template: Pod | None = None
    replicas: Int32 | None = None


class PodController(PodField, frozen=True):
    """A resource that creates pods."""

    metadata: PodMetadata | None = None
    spec: WorkloadSpec | None = None


class JobTemplate(PodField, frozen=True):
    """The template of a CronJob."""

    metadata: PodMetadata | None = None
    spec: WorkloadSpec | None = None


class CronJobSpec(PodField, frozen=True):
    """The spec of a CronJob."""

    schedule: str | None = None
    suspend: bool | None = None
    job_template: JobTemplate | None = None


class CronJob(PodField, frozen=True):
    """A resource that creates Jobs."""

    metadata: PodMetadata | None = None
    spec: CronJobSpec | None = None


NO_CONTEXT = SecurityContext()
NO_POD_CONTEXT = PodSecurityContext()
NO_SPEC = PodSpec()

TEMPLATED_KINDS = frozenset(
    {"DaemonSet", "Deployment", "Job", "StatefulSet", "ReplicaSet", "ReplicationController"}
)


def _is_plain(context: SecurityContext | PodSecurityContext) -> bool:
    return (
        context.windows_options is None
        and context.se_linux_options is None
        and context.app_armor_profile is None
    )


class CheckedPod:
    """The Pod to check, with its three lists of containers joined.

    `is_plain`: no security context uses the rarer fields, so the checks of only those fields can be
    skipped.
    """

    __slots__ = (
        "annotations",
        "containers",
        "context",
        "contexts",
        "initials",
        "is_plain",
        "regulars",
        "spec",
    )

    def __init__(self, spec: PodSpec, annotations: dict[str, str]) -> None:
        initials = spec.init_containers or []
        regulars = spec.containers or []
        self.spec = spec
        self.annotations = annotations
        self.containers = initials + regulars + (spec.ephemeral_containers or [])
        self.context = spec.security_context or NO_POD_CONTEXT
        self.contexts = [each.security_context or NO_CONTEXT for each in self.containers]
        self.is_plain = _is_plain(self.context) and all(map(_is_plain, self.contexts))
        self.initials = len(initials)
        self.regulars = len(regulars)

    def path(self, position: int) -> str:
        """The path of the container at this position."""
        if position < self.initials:
            return f"spec.initContainers[{position}]"
        position -= self.initials
        if position < self.regulars:
            return f"spec.containers[{position}]"
        return f"spec.ephemeralContainers[{position - self.regulars}]"


# Built now: msgspec would crash if threads built it on first use at the same time.
for _each in (Pod, PodController, CronJob):
    msgspec.json.Decoder(_each)


def _read_template(resource: Json) -> tuple[PodSpec | None, PodMetadata | None]:
    workload = convert_record(resource, PodController)
    template = workload.spec.template if workload.spec else None
    return (template.spec, template.metadata) if template else (None, None)


def _read_cron_job(resource: Json) -> tuple[PodSpec | None, PodMetadata | None]:
    cron_job = convert_record(resource, CronJob)
    job = cron_job.spec.job_template if cron_job.spec else None
    template = job.spec.template if job and job.spec else None
    # Like Kyverno, this reads the annotations of the Job, not of the pod.
    return (template.spec if template else None), (job.metadata if job else None)


def _read_spec(kind: Json, resource: Json) -> tuple[PodSpec | None, PodMetadata | None]:
    if kind == "Pod":
        pod = convert_record(resource, Pod)
        return pod.spec, pod.metadata
    if kind == "CronJob":
        return _read_cron_job(resource)
    if isinstance(kind, str) and kind in TEMPLATED_KINDS:
        return _read_template(resource)
    raise EvaluationError(f"a resource of kind {kind} has no pod")


def read_pod(resource: Json) -> CheckedPod:
    """The pod of this resource; raises EvaluationError if there is none."""
    kind = resource.get("kind") if isinstance(resource, dict) else None
    try:
        spec, metadata = _read_spec(kind, resource)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise EvaluationError(f"the {kind} is not well-formed: {error}") from error
    annotations = metadata.annotations if metadata else None
    return CheckedPod(spec or NO_SPEC, annotations or {})
