"""What a family of policies needs beside its compiler: objects to watch and modules to run."""

from collections.abc import Callable, Mapping

import msgspec

from lictor.core.families.family import Family
from lictor.core.families.registry import registry
from lictor.core.lang.wasm_module import Modules, NoModules
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Program
from lictor.core.raw import Json
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.stored_policy import StoredPolicy

CompileWith = Callable[[Modules], tuple[Program, ...]]


class ServiceAccess(msgspec.Struct, frozen=True):
    """What the services of a family may use."""

    # The namespace of the installation.
    namespace: str
    # Requests a path of the API server; not on the thread of the event loop.
    get: Callable[[str], Json]
    # Policies that name another server than the default one are not compiled in this process.
    only_own: bool = False


class Attachment(msgspec.Struct, frozen=True):
    """What a family adds to a policy before it is compiled."""

    records: tuple[PolicyRecord, ...] = ()
    # Why no process can run the policy.
    fault: str = ""
    # Changes when the rest does.
    mark: str = ""


class FamilyServices:
    """The services of a family that needs none; others override what they need."""

    @property
    def caches(self) -> tuple[Cache, ...]:
        """Objects that are watched for the policies of the family."""
        return ()

    def attach(self, policy: StoredPolicy) -> Attachment:  # noqa: ARG002
        return Attachment()

    def compile(
        self,
        policy: StoredPolicy,  # noqa: ARG002
        attachment: Attachment,  # noqa: ARG002
        compile_with: CompileWith,
    ) -> tuple[Program, ...]:
        """The programs of a policy; called on a thread.

        NotYetError if something must be fetched first, CompileError if no process can run it.
        """
        return compile_with(NoModules())

    def find_fault(self, uid: str) -> str:  # noqa: ARG002
        """Why the programs of a policy return errors; empty if they do not."""
        return ""

    def has_invalid_settings(self, uid: str) -> bool:  # noqa: ARG002
        return False

    def keep(self, live: set[str]) -> Mapping[str, float]:  # noqa: ARG002
        """Forget other policies. Returns after how many seconds to compile which policies again."""
        return {}


def build_services(
    client: Client, flags: Flags, access: ServiceAccess, on_arrival: Callable[[], None]
) -> dict[Family, FamilyServices]:
    """The services by family. `on_arrival` is called when what policies wait for may have come."""
    found: dict[Family, FamilyServices] = {}
    for family in registry().families:
        build = family.find_services()
        services = None if build is None else build(client, flags, access, on_arrival)
        if isinstance(services, FamilyServices):
            found[family] = services
        elif services is not None:
            raise TypeError(f"internal error: services of {family.name} are no FamilyServices")
    return found
