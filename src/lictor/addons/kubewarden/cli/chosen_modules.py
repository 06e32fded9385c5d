"""Which module is meant, where does it come from, and who must have signed it?"""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from lictor.addons.kubewarden.cli.module_metadata import ModuleListing
from lictor.addons.kubewarden.modules.module_address import ModuleAddress, parse_module_address
from lictor.addons.kubewarden.modules.module_folder import StoredModule, check_module, write_whole
from lictor.addons.kubewarden.modules.module_store import ModuleStore, read_module_settings
from lictor.addons.kubewarden.modules.module_verification import (
    GithubRule,
    IssuerRule,
    KeyRule,
    SignatureRule,
    SubjectRule,
    VerificationConfig,
    check_verification,
    read_verification,
)
from lictor.addons.kubewarden.runtime.metadata import read_metadata
from lictor.core.errors import LoadError, ModuleError, UsageError
from lictor.core.files import read_bytes
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.raw import Json
from lictor.images.manifests import is_multi_line

_HEX = re.compile(r"[0-9a-f]{4,64}")


class SourceFlags(msgspec.Struct, frozen=True):
    """How the hosts are spoken to that modules come from."""

    sources_path: str = ""
    docker_config_json_path: str = ""


class SignerFlags(msgspec.Struct, frozen=True):
    """The required signers of a module; empty if no flag is given."""

    verification_config_path: str = ""
    verification_key: tuple[str, ...] = ()
    verification_annotation: tuple[str, ...] = ()
    cert_email: str = ""
    cert_oidc_issuer: str = ""
    github_owner: str = ""
    github_repo: str = ""
    sigstore_trust_config: str = ""


class FoundModule(msgspec.Struct, frozen=True):
    """The bytes of a module, and the address that manifests name it by."""

    address: str
    content: bytes


class PushedModule(msgspec.Struct, frozen=True):
    """Where a module can be fetched from now, and what should be known of it."""

    reference: str
    warnings: tuple[str, ...] = ()


def split_flags(flags: Json) -> tuple[SourceFlags, SignerFlags]:
    """Sort the flags of a command by what they are about."""
    return msgspec.convert(flags, SourceFlags), msgspec.convert(flags, SignerFlags)


def open_store(
    sources: SourceFlags,
    signers: SignerFlags | None = None,
    *,
    private_folder: Path | None = None,
) -> ModuleStore:
    """The store of this user, which takes only what was signed as the flags demand.

    What is compiled is kept in `private_folder`, where one is given.
    """
    wanted = signers or SignerFlags()
    files = read_module_settings(
        sources=sources.sources_path,
        docker_config=sources.docker_config_json_path,
        trust=wanted.sigstore_trust_config,
    )
    verification = read_signers(wanted)
    settings = replace(files, private_folder=private_folder, verification=verification)
    return ModuleStore(settings.for_operator())


def read_signers(flags: SignerFlags) -> VerificationConfig | None:
    """The signers that the flags require; None without such flags."""
    annotations = _read_annotations(flags.verification_annotation)
    rules = tuple(_list_rules(flags, annotations))
    if flags.verification_config_path:
        if rules or annotations:
            raise LoadError("--verification-config-path goes with no other flag of verification")
        return read_verification(flags.verification_config_path)
    if annotations and not rules:
        raise LoadError("--verification-annotation needs a key or a signer beside it")
    if not rules:
        return None
    config = VerificationConfig(all_of=rules)
    check_verification(config, "the flags")
    return config


def _list_rules(flags: SignerFlags, annotations: dict[str, str]) -> Iterable[SignatureRule]:
    signed = annotations or None
    for path in flags.verification_key:
        yield KeyRule(key=read_bytes(path).decode("utf-8", "replace"), annotations=signed)
    if bool(flags.cert_email) != bool(flags.cert_oidc_issuer):
        raise LoadError("--cert-email and --cert-oidc-issuer go together")
    if flags.cert_email:
        subject = SubjectRule(equal=flags.cert_email)
        yield IssuerRule(issuer=flags.cert_oidc_issuer, subject=subject, annotations=signed)
    if flags.github_repo and not flags.github_owner:
        raise LoadError("--github-repo needs --github-owner")
    if flags.github_owner:
        repository = flags.github_repo or None
        yield GithubRule(owner=flags.github_owner, repo=repository, annotations=signed)


def _read_annotations(texts: Iterable[str]) -> dict[str, str]:
    annotations = {}
    for text in texts:
        name, equals, value = text.partition("=")
        # Left out, it would look as if it had been verified.
        if not name or not equals:
            raise LoadError(f"--verification-annotation {text!r} must be NAME=VALUE")
        annotations[name] = value
    return annotations


def find_module(
    word: str,
    sources: SourceFlags,
    signers: SignerFlags | None = None,
    *,
    pulls: bool = False,
) -> FoundModule:
    """The module that a word names: a file, an address, or the beginning of its SHA-256."""
    return locate_module(word, open_store(sources, signers), pulls=pulls)


def locate_module(word: str, store: ModuleStore, *, pulls: bool) -> FoundModule:
    """The same in an open store; only with `pulls` are registries contacted."""
    if "://" not in word and Path(word).exists():
        word = Path(word).absolute().as_uri()
    elif _HEX.fullmatch(word) and (kept := _find_by_digest(word, store)):
        return FoundModule(kept.address.text, kept.path.read_bytes())
    address = parse_module_address(word)
    if pulls or word.startswith("file://"):
        return FoundModule(address.text, store.fetch(word).content)
    stored = _find_stored(word, address, store)
    return FoundModule(address.text, stored.path.read_bytes())


def point_to_module(word: str, store: ModuleStore) -> str:
    """The address from which the module that a word names is loaded for a run."""
    if "://" in word:
        return word
    path = Path(word)
    if not path.exists():
        kept = _find_by_digest(word, store) if _HEX.fullmatch(word) else None
        path = (kept or _find_stored(word, parse_module_address(word), store)).path
    # With escapes: a name may have a percent sign, too.
    return path.absolute().as_uri()


def _find_stored(word: str, address: ModuleAddress, store: ModuleStore) -> StoredModule:
    try:
        return store.folder.find(address)
    except UsageError as error:
        if "://" in word:
            raise
        # Most likely a file that is somewhere else.
        raise UsageError(f"{error}; and there is no file {word}") from error


def _find_by_digest(prefix: str, store: ModuleStore) -> StoredModule | None:
    found = store.folder.find_by_digest(prefix)
    if len(found) > 1:
        named = ", ".join(module.address.text for module in found)
        raise LoadError(f"several policies have a SHA-256 that begins with {prefix}: {named}")
    return found[0] if found else None


def pull_module(word: str, sources: SourceFlags, signers: SignerFlags, output: str) -> None:
    """Fetch a module into the store, and into a file where one is named."""
    fetched = open_store(sources, signers).pull(word)
    if not output:
        return
    place = Path(output)
    if place.is_dir():
        name = fetched.address.path.rpartition("/")[2]
        place /= name if name.endswith(".wasm") else f"{name}.wasm"
    write_whole(place, fetched.content)


def push_module(word: str, target: str, flags: SourceFlags, *, force: bool) -> PushedModule:
    """Put a module into a registry; one without metadata only where that is wanted."""
    store = open_store(flags)
    content = locate_module(word, store, pulls=False).content
    check_module(content, word)
    metadata = read_metadata(content)
    if metadata is None and not force:
        raise ModuleError(f"{word} has no metadata: annotate it first, or push it with --force")
    return PushedModule(store.push(content, target, metadata), tuple(_list_lost(metadata)))


def _list_lost(metadata: ModuleMetadata | None) -> Iterable[str]:
    if metadata is None:
        yield "the module has no metadata: servers will not know how to run it"
        return
    for name, text in sorted((metadata.annotations or {}).items()):
        if is_multi_line(text):
            yield f"{name} has several lines, and is left out of the manifest in the registry"


def find_digest(word: str, flags: SourceFlags) -> str:
    """The digest that a registry has for a reference now."""
    return open_store(flags).resolve(word)


def verify_module_at(word: str, sources: SourceFlags, signers: SignerFlags) -> None:
    """SignatureRefusedError where a module in a registry is not signed as the flags demand."""
    config = read_signers(signers)
    if config is None:
        raise LoadError("no required signer is given: give a key, a signer, or a file")
    open_store(sources, signers).verify(word, config)


def list_stored() -> list[ModuleListing]:
    """All modules of the store."""
    folder = open_store(SourceFlags()).folder
    return [
        _describe(module, folder.read(module.address) or b"") for module in folder.list_modules()
    ]


def _describe(module: StoredModule, content: bytes) -> ModuleListing:
    try:
        metadata = read_metadata(content)
    except ModuleError:
        # It is listed all the same, so that it can be removed.
        metadata = None
    return ModuleListing(module.address.text, metadata, module.compute_digest(), module.size)


def remove_stored(word: str) -> None:
    """Remove a module from the store."""
    store = open_store(SourceFlags())
    store.folder.remove(parse_module_address(_choose_address(word, store)))


def save_stored(words: Iterable[str], archive: str) -> None:
    """Write modules of the store into an archive."""
    store = open_store(SourceFlags())
    addresses = [parse_module_address(_choose_address(word, store)) for word in words]
    store.folder.save(addresses, Path(archive))


def load_archive(archive: str) -> None:
    """Take the modules of an archive into the store."""
    open_store(SourceFlags()).folder.load(Path(archive))


def _choose_address(word: str, store: ModuleStore) -> str:
    kept = _find_by_digest(word, store) if _HEX.fullmatch(word) else None
    return kept.address.text if kept else word
