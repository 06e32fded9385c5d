"""May an authority vouch for these names? Name constraints of certificates (RFC 5280, 4.2.1.10)."""

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lictor.errors import SignatureRefusedError
from lictor.raw import Json

# Loading the library takes a while, and few policies hold keys: it is imported where it is used.
if TYPE_CHECKING:
    from cryptography import x509

_MOST = 256


def check_names(constraints: "x509.NameConstraints", names: "Iterable[x509.GeneralName]") -> None:
    """SignatureRefusedError where a name lies outside of what the constraints permit."""
    permitted = list(constraints.permitted_subtrees or ())
    excluded = list(constraints.excluded_subtrees or ())
    tests = _list_tests()
    for subtree in (*permitted, *excluded):
        if type(subtree) not in tests or len(permitted) + len(excluded) > _MOST:
            # What cannot be enforced must not be taken for allowed.
            raise SignatureRefusedError(
                "its name constraints are of a kind that lictor cannot test"
            )
    for name in names:
        fits = tests.get(type(name))
        if fits is None:
            continue
        limits = [subtree.value for subtree in permitted if type(subtree) is type(name)]
        if limits and not any(fits(limit, name.value) for limit in limits):
            raise SignatureRefusedError(f"its name constraints do not permit {name.value!s}")
        forbidden = (subtree.value for subtree in excluded if type(subtree) is type(name))
        if any(fits(limit, name.value) for limit in forbidden):
            raise SignatureRefusedError(f"its name constraints exclude {name.value!s}")


def _list_tests() -> "Mapping[type[x509.GeneralName], Callable[[Json, Json], bool]]":
    from cryptography import x509

    return {
        x509.DNSName: _fits_domain,
        x509.RFC822Name: _fits_mailbox,
        x509.UniformResourceIdentifier: _fits_url,
        x509.IPAddress: _fits_address,
    }


def _fits_domain(limit: str, name: str) -> bool:
    """The domain itself and all below it; only those below where the limit begins with a dot."""
    limit, name = limit.lower(), name.lower().rstrip(".")
    if not limit or limit.startswith("."):
        return name.endswith(limit)
    return name == limit or name.endswith(f".{limit}")


def _fits_host(limit: str, host: str) -> bool:
    """The host itself; those below it only where the limit begins with a dot."""
    limit, host = limit.lower(), host.lower().rstrip(".")
    return host.endswith(limit) if limit.startswith(".") else host == limit


def _fits_mailbox(limit: str, name: str) -> bool:
    if "@" in limit:
        # The part before the sign may tell upper from lower case.
        mailbox, _, host = name.rpartition("@")
        wanted, _, domain = limit.rpartition("@")
        return (mailbox, host.lower()) == (wanted, domain.lower())
    return not limit or _fits_host(limit, name.rpartition("@")[2])


def _fits_url(limit: str, name: str) -> bool:
    try:
        host = urlsplit(name).hostname or ""
    except ValueError:
        host = ""
    if not host:
        raise SignatureRefusedError(f"name constraints cannot be tested on {name!r}")
    return not limit or _fits_host(limit, host)


def _fits_address(limit: IPv4Network | IPv6Network, address: IPv4Address | IPv6Address) -> bool:
    return address in limit
