"""Policy modules in a real registry, signed by real cosign."""

from pathlib import Path

import msgspec
import pytest
import wasmtime
from image_tools.loopback_registry import Repository
from image_tools.scene import Signers

from lictor.addons.kubewarden.modules.module_sources import ModuleSources
from lictor.addons.kubewarden.modules.module_store import ModuleSettings, ModuleStore
from lictor.addons.kubewarden.modules.module_verification import KeyRule, VerificationConfig
from lictor.core.errors import ModuleError
from lictor.core.lang.wasm_module import ModuleMetadata

MODULE = bytes(wasmtime.wat2wasm('(module (func (export "f") (result i32) i32.const 1))'))
METADATA = ModuleMetadata(annotations={"io.kubewarden.policy.title": "demo"})


@pytest.fixture
def settings(registry: str, tmp_path: Path) -> ModuleSettings:
    return ModuleSettings(
        folder=tmp_path / "store",
        private_folder=tmp_path / "private",
        sources=ModuleSources(insecure=frozenset([registry])),
    )


def _demand(settings: ModuleSettings, key: str, **annotations: str) -> ModuleStore:
    rule = KeyRule(key=key, annotations=annotations or None)
    config = VerificationConfig(all_of=(rule,))
    return ModuleStore(msgspec.structs.replace(settings, verification=config))


def test_a_module_is_pushed_and_pulled(registry: str, settings: ModuleSettings) -> None:
    address = f"registry://{registry}/policies/plain:v1"
    # Larger than one piece of a network.
    content = MODULE + b"\x00\xff\xff\x3f\x01x" + bytes(2**20 - 3)
    reference = ModuleStore(settings).push(content, address, METADATA)
    manifest = Repository(registry, "policies/plain").manifest("v1")
    assert manifest["annotations"] == METADATA.annotations
    assert "mediaType" not in manifest
    assert ModuleStore(settings).fetch(address).content == content
    assert ModuleStore(settings).fetch(reference).content == content


@pytest.mark.parametrize("bundle", [False, True])
def test_signatures_of_cosign_count(
    registry: str, settings: ModuleSettings, signers: Signers, *, bundle: bool
) -> None:
    address = f"{registry}/policies/signed-{bundle}:v1".lower()
    reference = ModuleStore(settings).push(MODULE, address, METADATA)
    with pytest.raises(ModuleError, match="no signatures found"):
        _demand(settings, signers.trusted.public).load(address)
    signers.cosign.sign(reference, signers.trusted, "-a", "env=prod", bundle=bundle)
    assert _demand(settings, signers.trusted.public, env="prod").load(address)
    for key, annotations in ((signers.stranger, {}), (signers.trusted, {"env": "test"})):
        with pytest.raises(ModuleError, match="missing signatures"):
            _demand(settings, key.public, **annotations).load(address)
