"""Policies in Wasm over loopback HTTP: CPU for a request, memory with 50 policies, start with 50 modules.

    python tools/bench/wasm.py [--requests 2000] [--only requests|many]

A policy server with two processes, log level error; four clients that keep their connections ask for a
rejected review each. CPU is that of all processes of the server (user and system), memory the sum of their
proportional shares. Beside each figure stands that of Kubewarden's policy-server, from the corpus.
Guests: those of the corpus (Rust, Go, WAT) and templates of Gatekeeper's library, compiled by OPA.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / "tests" / name) for name in ("conformance", "wasm")]

import yaml  # noqa: E402
from kubewarden_guests import CORPUS, Guests, annotate, build_guests, describe  # noqa: E402
from opa_program import Opa, Rego, find_opa, module_folder  # noqa: E402

LIBRARY = CORPUS.parent / "gatekeeper-library"
CLIENTS = 4
MANY = 50
_TICKS = os.sysconf("SC_CLK_TCK")
# Milliseconds of CPU for a request: what policy-server took, and what lictor may take.
BARS = {
    "rego-privileged": (0.77, 0.3),
    "rego-requests": (0.65, 0.3),
    "wapc-rust": (0.33, 0.33),
    "wapc-wat": (0.28, 0.28),
    "wasi-rust": (0.30, 0.30),
    "wasi-go": (2.0, 1.5),
}
TEMPLATES = {
    "rego-privileged": "pod-security-policy/privileged-containers/template.yaml",
    "rego-requests": "general/containerrequests/template.yaml",
}
REJECT = {"mode": "answer", "answer": {"accepted": False, "message": "no", "code": 400}}


def read_cases() -> dict[str, Any]:
    """A refused case of each template."""
    found: dict[str, Any] = {}
    for line in (CORPUS / "rego-cases.jsonl").read_text().splitlines():
        row = json.loads(line)
        if not row["expect"]["allowed"] or row["template"] not in found:
            found[row["template"]] = row
    return found


def read_template(path: str) -> dict[str, str]:
    target = yaml.safe_load((LIBRARY / path).read_text())["spec"]["targets"][0]
    code = [each["source"] for each in target.get("code", ()) if each["engine"] == "Rego"]
    source = code[0] if code else target
    libs = {f"lib{at}.rego": text for at, text in enumerate(source.get("libs") or ())}
    return {"policy.rego": source["rego"], **libs}


def build_rego(opa: Opa, row: Mapping[str, Any], title: str) -> bytes:
    rego = Rego(read_template(row["template"]), row["entrypoint"], "v0")
    return annotate(opa.build(rego, module_folder()), describe(title, "gatekeeper"))


def prepare(folder: Path, guests: Guests, opa: Opa) -> tuple[dict[str, Any], dict[str, Any]]:
    """Entries of policies, and the request for each."""
    cases = read_cases()
    pod = json.loads((CORPUS / "reviews.json").read_text())["pod"]
    entries: dict[str, Any] = {}
    reviews = dict.fromkeys(BARS, pod)
    for name, path in TEMPLATES.items():
        row = cases[path]
        (folder / f"{name}.wasm").write_bytes(build_rego(opa, row, name))
        entries[name] = {"module": f"file://{folder}/{name}.wasm", "settings": row["settings"]}
        reviews[name] = pod | {"request": row["request"]}
    for name, guest in (("wapc-rust", "wapc"), ("wasi-rust", "wasi")):
        entries[name] = {"module": f"file://{guests.folder}/{guest}.wasm", "settings": REJECT}
    entries["wapc-wat"] = {"module": f"file://{guests.folder}/reject.wasm"}
    denied = {"denied": ["app"]}
    entries["wasi-go"] = {"module": f"file://{guests.folder}/go-wasi.wasm", "settings": denied}
    return entries, reviews


@contextmanager
def serve(
    folder: Path, entries: Mapping[str, Any], *flags: str
) -> Iterator[tuple[int, int, float]]:
    """A server: its number, its port, and the seconds until it was ready."""
    (folder / "policies.yml").write_text(json.dumps(entries))
    ports = [str(20000 + (os.getpid() * 7 + at) % 12000) for at in range(2)]
    words = ["policy-server", "--addr", "127.0.0.1", "--port", ports[0], "--workers", "2"]
    words += ["--readiness-probe-port", ports[1], "--log-level", "error", *flags]
    words += ["--ignore-kubernetes-connection-failure", "--policies-download-dir", "dl"]
    began = time.monotonic()
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "KUBECONFIG": "none"}
    process = subprocess.Popen(
        [sys.executable, "-m", "lictor", *words], cwd=folder, env=environment
    )
    try:
        while not is_ready(int(ports[1])):
            if process.poll() is not None:
                raise SystemExit("the server did not start")
            time.sleep(0.01)
        yield process.pid, int(ports[0]), time.monotonic() - began
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def is_ready(port: int) -> bool:
    import http.client

    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/readiness")
        return connection.getresponse().status == 200
    except OSError:
        return False


def list_processes(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in list_processes(int(child)))]


def read_cpu(pid: int) -> float:
    """Seconds of all processes."""
    total = 0
    for each in list_processes(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def read_memory(pid: int) -> float:
    """MiB of all processes; what they share is counted once."""
    total = 0
    for each in list_processes(pid):
        text = Path(f"/proc/{each}/smaps_rollup").read_text()
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


async def ask_many(port: int, path: str, body: bytes, count: int) -> int:
    """Ask so often; how many answers were refusals."""

    async def run(number: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        message = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        refused = 0
        for _ in range(number):
            writer.write(message)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            refused += b'"allowed":false' in await reader.readexactly(length)
        writer.close()
        return refused

    return sum(await asyncio.gather(*(run(count // CLIENTS) for _ in range(CLIENTS))))


def measure_requests(folder: Path, guests: Guests, opa: Opa, count: int) -> None:
    entries, reviews = prepare(folder, guests, opa)
    print(
        f"{'policy':<16} {'ms CPU':>7} {'bar':>5} {'policy-server':>14} {'MiB':>6} {'refused':>8}"
    )
    for name, entry in entries.items():
        with serve(folder, {name: entry}) as (pid, port, _):
            body, path = json.dumps(reviews[name]).encode(), f"/validate/{name}"
            asyncio.run(ask_many(port, path, body, 200))
            before, tries = read_cpu(pid), []
            for _ in range(3):
                refused = asyncio.run(ask_many(port, path, body, count))
                after = read_cpu(pid)
                tries.append((after - before) * 1000 / count)
                before = after
            theirs, bar = BARS[name]
            print(
                f"{name:<16} {min(tries):7.3f} {bar:5.2f} {theirs:14.2f} {read_memory(pid):6.0f} "
                f"{refused:>4}/{count}"
            )


def measure_many(folder: Path, opa: Opa) -> None:
    """Modules that differ in their metadata at least, so that each is compiled for itself."""
    rows = list(read_cases().values())
    entries = {}
    for number in range(MANY):
        row = rows[number % len(rows)]
        path = folder / f"many-{number}.wasm"
        path.write_bytes(build_rego(opa, row, f"many-{number}"))
        entries[f"policy-{number}"] = {"module": f"file://{path}", "settings": row["settings"]}
    pod = json.loads((CORPUS / "reviews.json").read_text())["pod"]
    for start in ("first start", "second start", "third start"):
        with serve(folder, entries) as (pid, port, seconds):
            cpu = read_cpu(pid)
            for name in entries:
                asyncio.run(ask_many(port, f"/validate/{name}", json.dumps(pod).encode(), 8))
            print(
                f"{MANY} modules, {start}: ready after {seconds:.2f} s ({cpu:.2f} s of CPU in what is "
                f"left of its processes), {read_memory(pid):.0f} MiB after requests to all"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--only", choices=("requests", "many"))
    chosen = parser.parse_args()
    if not CORPUS.is_dir():
        raise SystemExit(f"no corpus at {CORPUS}")
    with tempfile.TemporaryDirectory() as name, Opa(find_opa()) as opa:
        folder = Path(name)
        if chosen.only in (None, "requests"):
            measure_requests(folder, build_guests(), opa, chosen.requests)
        if chosen.only in (None, "many"):
            measure_many(folder, opa)


if __name__ == "__main__":
    main()
