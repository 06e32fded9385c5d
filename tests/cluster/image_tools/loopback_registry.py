"""A registry on loopback, served by crane, and what tests write into it by hand."""

import hashlib
import json
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_PORT = re.compile(r"serving on port (\d+)")
_ACCEPTED = ", ".join(
    (
        MANIFEST,
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


@contextmanager
def serve_registry(
    crane: Path, address: str = "localhost:0", prefix: Sequence[str] = ()
) -> Iterator[str]:
    """The address of an empty registry on this machine, which lives as long as the block.

    `prefix` stands before the command, for a network of its own.
    """
    command = [*prefix, str(crane), "registry", "serve", "--address", address]
    # Not a pipe: nobody reads on, and the registry would wait once it is full.
    with (
        tempfile.NamedTemporaryFile("r") as printed,
        Path(printed.name).open("w") as output,
        subprocess.Popen(command, stderr=output) as process,
    ):
        try:
            yield f"localhost:{_wait_for_port(printed)}"
        finally:
            process.kill()


def _wait_for_port(printed: IO[str]) -> str:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if found := _PORT.search(printed.readline()):
            return found[1]
        time.sleep(0.02)
    raise RuntimeError("the registry did not start")


@dataclass(frozen=True)
class Repository:
    """One repository, by the HTTP API of registries."""

    address: str
    name: str

    def __str__(self) -> str:
        return f"{self.address}/{self.name}"

    def push_image(self, tag: str, text: str) -> str:
        """An image whose only content is the text; its digest."""
        config = {"architecture": "amd64", "os": "linux", "config": {"Labels": {"text": text}}}
        return self.push_manifest(
            tag,
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": self.push_blob(json.dumps(config).encode(), _CONFIG),
                "layers": [self.push_blob(text.encode(), _LAYER)],
            },
        )

    def push_blob(self, content: bytes, media_type: str) -> dict[str, Any]:
        """Its descriptor."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        started = self._call("POST", "blobs/uploads/")
        place = urljoin(f"http://{self.address}/", started.headers["Location"])
        separator = "&" if "?" in place else "?"
        _send("PUT", f"{place}{separator}digest={digest}", content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def push_manifest(self, tag: str, manifest: Mapping[str, Any]) -> str:
        """Its digest."""
        kind = str(manifest.get("mediaType", MANIFEST))
        return self.push_content(tag, json.dumps(manifest).encode(), kind)

    def push_content(self, tag: str, manifest: bytes, media_type: str) -> str:
        """The same for a manifest as it is."""
        self._call("PUT", f"manifests/{tag}", manifest, {"Content-Type": media_type})
        return f"sha256:{hashlib.sha256(manifest).hexdigest()}"

    def manifest(self, tag: str) -> dict[str, Any]:
        """What a tag or digest names."""
        answer = self._call("GET", f"manifests/{tag}", headers={"Accept": _ACCEPTED})
        return json.loads(answer.read())

    def digest(self, tag: str) -> str:
        """Of what a tag names."""
        answer = self._call("GET", f"manifests/{tag}", headers={"Accept": _ACCEPTED})
        return f"sha256:{hashlib.sha256(answer.read()).hexdigest()}"

    def blob(self, digest: str) -> bytes:
        """The content of that digest."""
        return self._call("GET", f"blobs/{digest}").read()

    def delete(self, tag: str) -> None:
        """Forget a tag."""
        self._call("DELETE", f"manifests/{tag}")

    def tags(self) -> list[str]:
        """All of them."""
        return json.loads(self._call("GET", "tags/list").read())["tags"]

    def _call(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        return _send(method, f"http://{self.address}/v2/{self.name}/{path}", content, headers)


def _send(
    method: str, url: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Any:
    asked = urllib.request.Request(url, content, dict(headers or {}), method=method)
    return urllib.request.urlopen(asked, timeout=10)
