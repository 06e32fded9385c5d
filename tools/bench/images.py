"""Signed images: from cold with a slow registry, warm in the webhook, beside a dead registry.

    python tools/bench/images.py [--images 1000] [--latency 50] [--only cold|warm|silent]

A registry of our own runs in a process of its own, takes 50 ms for each call and counts them. It holds
so many images, each signed with one ECDSA key in the way of cosign. Beside it stands one that takes
connections and never answers. More images than the cache of verified ones holds (1,000) would be asked
for again and again. CPU seconds are those of all of lictor's processes.
"""

import argparse
import asyncio
import base64
import hashlib
import json
import os
import resource
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from admission import LICTOR, Caller, Server
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
Object = dict[str, Any]


# --- the registry


class Registry:
    """Signed images in memory, behind the paths of the distribution API."""

    def __init__(self, images: int, key: ec.EllipticCurvePrivateKey) -> None:
        self.answers: dict[str, tuple[str, bytes]] = {}
        self.calls = 0
        for number in range(images):
            self._add_image(f"bench/app-{number:04}", key)

    def _add_image(self, name: str, key: ec.EllipticCurvePrivateKey) -> None:
        config = json.dumps({"architecture": "amd64", "os": "linux", "name": name}).encode()
        image = self._add_manifest(name, "v1", config, [("text/plain", name.encode(), {})])
        payload = json.dumps(
            {
                "critical": {
                    "identity": {"docker-reference": name},
                    "image": {"docker-manifest-digest": image},
                    "type": "cosign container image signature",
                },
                "optional": None,
            }
        ).encode()
        signature = base64.b64encode(key.sign(payload, ec.ECDSA(hashes.SHA256()))).decode()
        notes = {"dev.cosignproject.cosign/signature": signature}
        tag = f"{image.replace(':', '-')}.sig"
        self._add_manifest(name, tag, b"{}", [(PAYLOAD, payload, notes)])

    def _add_manifest(
        self, name: str, tag: str, config: bytes, layers: Sequence[tuple[str, bytes, Object]]
    ) -> str:
        document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._add_blob(name, "application/vnd.oci.image.config.v1+json", config),
            "layers": [
                {**self._add_blob(name, kind, content), "annotations": notes}
                for kind, content, notes in layers
            ],
        }
        content = json.dumps(document).encode()
        digest = _digest(content)
        for reference in (tag, digest):
            self.answers[f"/v2/{name}/manifests/{reference}"] = MANIFEST, content
        return digest

    def _add_blob(self, name: str, kind: str, content: bytes) -> Object:
        digest = _digest(content)
        self.answers[f"/v2/{name}/blobs/{digest}"] = "application/octet-stream", content
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def answer(self, method: str, path: str) -> bytes:
        kind, content = self.answers.get(path, ("application/json", b'{"errors": []}'))
        status = "200 OK" if path in self.answers else "404 Not Found"
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\n"
        if path in self.answers:
            head += f"docker-content-digest: {_digest(content)}\r\n"
        return f"{head}\r\n".encode() + (b"" if method == "HEAD" else content)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Talk(asyncio.Protocol):
    """One connection to the registry: an answer for each request, after a while."""

    def __init__(self, registry: Registry | None, latency: float) -> None:
        self._registry = registry
        self._latency = latency
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            method, path, _ = head.decode().split(" ", 2)
            if self._registry is not None:
                self._reply(self._registry, method, path)

    def _reply(self, registry: Registry, method: str, path: str) -> None:
        if path == "/calls":
            content = str(registry.calls).encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(content)}\r\n\r\n".encode()
            self._transport.write(head + content)
            return
        registry.calls += 1
        answer = registry.answer(method, path)
        asyncio.get_running_loop().call_later(self._latency, self._transport.write, answer)


async def serve_registry(images: int, latency: float) -> None:
    """Hold the images, and take connections for a registry that never answers."""
    key = ec.generate_private_key(ec.SECP256R1())
    registry = Registry(images, key)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Talk(registry, latency), "127.0.0.1", 0)
    silent = await loop.create_server(lambda: Talk(None, 0.0), "127.0.0.1", 0)
    ports = [found.sockets[0].getsockname()[1] for found in (server, silent)]
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    print(json.dumps({"ports": ports, "key": public.decode()}), flush=True)
    await asyncio.Event().wait()


class RegistryProcess:
    """The registries, until the block ends."""

    def __init__(self, images: int, milliseconds: float) -> None:
        command = [sys.executable, __file__, "--serve", str(milliseconds), "--images", str(images)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "RegistryProcess":
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        (self.port, self.silent), self.key = told["ports"], told["key"]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def calls(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/calls") as answer:
            return int(answer.read())


# --- policies and Pods


def make_policy(registry: RegistryProcess) -> Object:
    """One enforcing rule that verifies every image of the two registries."""
    keys = {
        "publicKeys": registry.key,
        "rekor": {"ignoreTlog": True},
        "ctlog": {"ignoreSCT": True},
    }
    verify = {
        "imageReferences": [f"localhost:{port}/*" for port in (registry.port, registry.silent)],
        "failureAction": "Enforce",
        "mutateDigest": True,
        "attestors": [{"entries": [{"keys": keys}]}],
    }
    rule = {"match": {"any": [{"resources": {"kinds": ["Pod"]}}]}, "verifyImages": [verify]}
    return _make_policy("verify", {"name": "signed", **rule})


def make_plain_policy() -> Object:
    """A rule about Pods that asks nobody: it is there with and without the other."""
    rule = {
        "name": "team",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "mutate": {"patchStrategicMerge": {"metadata": {"labels": {"+(team)": "none"}}}},
    }
    return _make_policy("plain", rule)


def _make_policy(name: str, rule: Object) -> Object:
    spec = {"background": False, "webhookTimeoutSeconds": 30, "rules": [rule]}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {
            "name": name,
            "annotations": {"pod-policies.kyverno.io/autogen-controllers": "none"},
        },
        "spec": spec,
    }


def make_pod(port: int, number: int) -> Object:
    image = f"localhost:{port}/bench/app-{number:04}:v1"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"app-{number:04}", "namespace": "default"},
        "spec": {"containers": [{"name": "app", "image": image}]},
    }


def make_review(pod: Object) -> bytes:
    """What an API server asks before it stores a Pod."""
    request = {
        "uid": pod["metadata"]["name"],
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "name": pod["metadata"]["name"],
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


# --- from cold


def measure_cold(registry: RegistryProcess, images: int, folder: Path) -> None:
    """`lictor apply` of so many Pods, nothing known before."""
    policy, pods = folder / "policy.yaml", folder / "pods.yaml"
    policy.write_text(yaml.safe_dump(make_policy(registry)))
    pods.write_text(yaml.safe_dump_all(make_pod(registry.port, n) for n in range(images)))
    command = [LICTOR, "apply", str(policy), "-r", str(pods), "--registry", "--remove-color"]
    calls, used, began = registry.calls, _children_cpu(), time.perf_counter()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, cpu = time.perf_counter() - began, _children_cpu() - used
    summary = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.stderr[-500:]
    print(
        f"{'images from cold':34} {seconds:7.2f} s  bar 10 s; {cpu:.2f} s of CPU, "
        f"{registry.calls - calls} calls of registries for {images} images\n    {summary}",
        flush=True,
    )


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# --- warm


class Sender(Caller):
    """A connection on which each request may be another."""

    def send(self, review: bytes) -> "asyncio.Future[bool]":
        head = (
            "POST /mutate/fail?timeout=30s HTTP/1.1\r\nhost: lictor\r\n"
            f"content-type: application/json\r\ncontent-length: {len(review)}\r\n\r\n"
        )
        self._request = head.encode() + review
        return asyncio.ensure_future(self.call())


async def connect(port: int, count: int, expected: bytes) -> list[Sender]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    return [
        (
            await loop.create_connection(
                lambda: Sender(b"", expected), "127.0.0.1", port, ssl=context
            )
        )[1]
        for _ in range(count)
    ]


async def send_all(
    port: int, reviews: Sequence[bytes], connections: int, expected: bytes = b'"allowed":true'
) -> tuple[int, list[float]]:
    """How many were answered otherwise, and the seconds that each took, in order of size."""
    waiting, errors, latencies = iter(reviews), 0, list[float]()

    async def work(sender: Sender) -> None:
        nonlocal errors
        for review in waiting:
            began = time.perf_counter()
            errors += not await sender.send(review)
            latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(work(s) for s in await connect(port, connections, expected)))
    return errors, sorted(latencies)


def measure_warm(registry: RegistryProcess, images: int, folder: Path, port: int) -> None:
    """CPU of a webhook that knows all images, with the rule and without."""
    reviews = [make_review(make_pod(registry.port, number)) for number in range(images)]
    rounds = max(20_000 // images, 1)
    cpu = {}
    for name, policies in (
        ("without", [make_plain_policy()]),
        ("with", [make_plain_policy(), make_policy(registry)]),
    ):
        (folder / name).mkdir()
        (folder / name / "policies.yaml").write_text(yaml.safe_dump_all(policies))
        with Server(folder / name, port, "--workers", "1") as server:
            errors, first = asyncio.run(send_all(port, reviews, 64))
            calls, used = registry.calls, server.cpu
            errors_again, _ = asyncio.run(send_all(port, reviews * rounds, 8))
            cpu[name] = (server.cpu - used) / (rounds * images) * 1e3
            print(
                f"    {name} the rule: first round {first[-1]:.2f} s at most, {errors} errors; "
                f"then {cpu[name]:.3f} ms of CPU a request, {errors_again} errors, "
                f"{registry.calls - calls} calls of registries (bar 0)"
            )
        port += 10
    extra = cpu["with"] - cpu["without"]
    print(f"{'images warm':34} {extra:7.3f} ms of CPU more an image  bar 0.1 ms", flush=True)


# --- beside a registry that never answers


def measure_silent(registry: RegistryProcess, images: int, folder: Path, port: int) -> None:
    """Latency of requests on other images while some wait for a registry in vain."""
    reviews = [make_review(make_pod(registry.port, number)) for number in range(images)]
    lost = [make_review(make_pod(registry.silent, number)) for number in range(400)]
    (folder / "silent").mkdir()
    (folder / "silent" / "policies.yaml").write_text(yaml.safe_dump(make_policy(registry)))
    with Server(folder / "silent", port, "--workers", "1") as server:
        found = asyncio.run(_measure_beside(server.port, reviews, lost))
    for name, (alone, beside) in found.items():
        for share in (0.5, 0.99):
            before, after = (each[int(len(each) * share)] * 1e3 for each in (alone, beside))
            print(
                f"{f'beside a dead one, {name}, p{share * 100:.0f}':34} {after - before:7.2f} ms "
                f"more  bar 5 ms ({before:.2f} ms alone, {after:.2f} ms beside)",
                flush=True,
            )


async def _measure_beside(
    port: int, reviews: Sequence[bytes], lost: Sequence[bytes]
) -> dict[str, tuple[list[float], list[float]]]:
    """Of images that are known and of such as are not: alone, and beside the dead registry."""
    fifth = len(reviews) // 5
    known, fresh, others = (
        reviews[:fifth],
        reviews[fifth : 3 * fifth],
        reviews[3 * fifth :],
    )
    await send_all(port, known, 64)
    _, known_alone = await send_all(port, known * 9, 1)
    _, fresh_alone = await send_all(port, fresh, 4)
    senders = await connect(port, len(lost), b"never")
    hanging = []
    for number, (sender, review) in enumerate(zip(senders, lost, strict=True)):
        if number == len(lost) // 2:
            await asyncio.sleep(1.5)
        hanging.append(sender.send(review))
    await asyncio.sleep(0.5)
    errors, known_beside = await send_all(port, known * 9, 1)
    more_errors, fresh_beside = await send_all(port, others, 4)
    still = sum(not answer.done() for answer in hanging)
    print(
        f"    {still} of {len(hanging)} requests still waited for the dead registry; "
        f"{errors + more_errors} errors of others"
    )
    for answer in hanging:
        answer.cancel()
    return {"known": (known_alone, known_beside), "not known": (fresh_alone, fresh_beside)}


def main() -> None:
    """Print the lines of the table, or be the registry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=50.0, help="milliseconds of each call")
    parser.add_argument("--only", choices=("cold", "warm", "silent"))
    parser.add_argument("--port", type=int, default=19643)
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        asyncio.run(serve_registry(given.images, given.serve / 1e3))
        return
    os.environ.pop("TUF_ROOT", None)
    registries = RegistryProcess(given.images, given.latency)
    with registries as registry, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.only in (None, "cold"):
            measure_cold(registry, given.images, folder)
        if given.only in (None, "warm"):
            measure_warm(registry, given.images, folder, given.port)
        if given.only in (None, "silent"):
            measure_silent(registry, given.images, folder, given.port + 40)


if __name__ == "__main__":
    main()
