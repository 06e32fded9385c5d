"""The page's index on a live API server: memory, CPU of reading and of the first view, lag.

    python tools/bench/web.py [--results 100000] [--namespaces 300] [--each 10] [--files]

An API server (the one inside lictor) runs in a process of its own and is filled with reports; then
another process follows it as `lictor web` does, and measures itself: CPU seconds, and memory of
the whole process (resident, and the most it ever was). With --files only what the page promises is
measured: real `lictor web --report` processes on files with so many results, asked over HTTP.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from lictor.core.errors import LictorError
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.resource import CUSTOM_RESOURCE_DEFINITION, NAMESPACE, POLICY_REPORT

T = TypeVar("T")
HANDS = 8
TOKEN = "bench"
OVERVIEW = ((), ("severity",), ("category",), ("family",), ("source",), ("namespace",), ("policy",))


def make_report(number: int, options: argparse.Namespace, dice: random.Random) -> dict[str, Any]:
    """A report on one Pod, as a background scan writes it; a quarter of its results are failures."""
    uid = str(uuid.UUID(int=dice.getrandbits(128)))
    place, name = f"team-{number % options.namespaces}", f"web-{number}-{dice.getrandbits(32):x}"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    return {
        "apiVersion": POLICY_REPORT.api_version,
        "kind": POLICY_REPORT.kind,
        "metadata": {"name": uid, "namespace": place},
        "scope": {**owner, "namespace": place},
        "results": [make_entry(policy, name, dice) for policy in range(options.each)],
        "summary": {"pass": 0, "fail": 0, "warn": 0, "error": 0, "skip": 0},
    }


def make_entry(policy: int, name: str, dice: random.Random) -> dict[str, Any]:
    failed = dice.random() < 0.25
    said = (
        f"validation error: {name} lacks what rule check-{policy} asks for at path /spec/x{policy}/"
    )
    return {
        "source": "kyverno",
        "policy": f"require-something-{policy}",
        "rule": f"check-{policy}",
        "result": "fail" if failed else "pass",
        "severity": ("high", "medium", "low")[policy % 3],
        "category": ("Pod Security", "Best Practices")[policy % 2],
        "message": said if failed else "validation rule passed.",
        "scored": True,
        "properties": {"process": "background scan"},
        "timestamp": {"seconds": 1_790_000_000 + dice.randrange(10**6), "nanos": 0},
    }


# --- the API server


async def serve(options: argparse.Namespace) -> None:
    """Fill an API server, say where it is, and serve until the parent ends."""
    from lictor.addons.apiserver.request import ApiUser
    from lictor.addons.apiserver.server import Server, ServerSettings
    from lictor.install.crds import build_crds

    users = {TOKEN: ApiUser("admin", ("system:masters", "system:authenticated"))}
    server = Server(ServerSettings(tokens=users))
    await server.start()
    client = Client(ClusterConfig(server.url, token=lambda _: TOKEN))
    for crd in build_crds(["wgpolicyk8s.io"]):
        await client.create(CUSTOM_RESOURCE_DEFINITION, crd)
    for number in range(options.namespaces):
        await client.create(NAMESPACE, {"metadata": {"name": f"team-{number}"}})
    dice = random.Random(17)
    count = options.results // options.each
    reports = (make_report(number, options, dice) for number in range(count))
    await until_served(client)
    await asyncio.gather(*(fill(client, reports) for _ in range(HANDS)))
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def until_served(client: Client) -> None:
    while True:
        try:
            async for _ in client.list_pages(POLICY_REPORT, page=1):
                return
        except LictorError:
            await asyncio.sleep(0.05)


async def fill(client: Client, reports: Iterator[dict[str, Any]]) -> None:
    for report in reports:
        await client.create(POLICY_REPORT, report)


# --- the page's side


def read_memory() -> dict[str, float]:
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines if line.startswith(("VmRSS", "VmHWM")))
    return {name: int(text.split()[0]) / 1024 for name, text in found.items()}


def spend(work: Callable[[], T]) -> tuple[float, T]:
    """Milliseconds of CPU, and what came of it."""
    began = time.process_time()
    made = work()
    return (time.process_time() - began) * 1000, made


async def measure(url: str) -> dict[str, float]:
    """Follow the server, and ask what pages ask."""
    from lictor.addons.web.records import ExportFormat, ResultFilter, Viewer, VisibleNamespaces
    from lictor.addons.web.results_export import export_results
    from lictor.addons.web.sources.cluster_reports import ClusterReports

    client = Client(ClusterConfig(url, token=lambda _: TOKEN))
    state = ClusterReports({"here": client})
    viewer, everything = Viewer("me", {"here": VisibleNamespaces(True, True)}), ResultFilter()  # noqa: FBT003
    results = state.results
    start_memory, began = read_memory()["VmRSS"], time.process_time()
    running = asyncio.create_task(state.run())
    await state.wait()
    reading = time.process_time() - began

    def see_overview() -> None:
        for fields in OVERVIEW:
            results.count(everything, viewer, fields)
        results.select(everything, viewer)

    found = {
        "results": float(len(results)),
        "MB before reading": start_memory,
        "MB after reading": read_memory()["VmRSS"],
        "MB at most": read_memory()["VmHWM"],
        "s CPU of reading all": reading,
        "ms CPU of the first view": spend(see_overview)[0],
        "ms CPU of the same again": spend(see_overview)[0],
    }
    for name, work in {
        "ms CPU of a page in the middle": lambda: results.select(everything, viewer, offset=50_000),
        "ms CPU of a search in texts": lambda: results.select(ResultFilter(text="X3/"), viewer),
        "ms CPU of totals by resource": lambda: results.count(
            everything, viewer, ("namespace", "kind", "name")
        ),
        "ms CPU of all as CSV": lambda: sum(
            map(len, export_results(results.export(everything, viewer), ExportFormat.CSV))
        ),
    }.items():
        found[name] = spend(work)[0]
    found |= await measure_pages(state, viewer)
    found["ms until a change is seen"] = await measure_lag(client, results)
    found["MB at the end"] = read_memory()["VmRSS"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await client.close()
    return found


async def measure_pages(state: Any, viewer: Any) -> dict[str, float]:
    """Whole pages as HTML; the first of each pays for what is loaded late."""
    from lictor.addons.web.pages.page import PageRequest
    from lictor.addons.web.pages.render import render_page

    found: dict[str, float] = {}
    for path in ("/", "/results", "/namespaces", "/policies", "/resources"):
        began = time.process_time()
        page = await render_page(PageRequest(path), state, viewer)
        found[f"ms CPU of the page {path}"] = (time.process_time() - began) * 1000
        found[f"kB of the page {path}"] = len(page.body) / 1000
    return found


async def measure_lag(client: Client, results: Any) -> float:
    heard: list[float] = []
    results.listen(lambda _: heard.append(time.monotonic()))
    options = argparse.Namespace(namespaces=1, each=10)
    changed = make_report(0, options, random.Random(99))
    began = time.monotonic()
    await client.create(POLICY_REPORT, changed)
    async with asyncio.timeout(30):
        while not heard:  # noqa: ASYNC110  (the watch tells)
            await asyncio.sleep(0.001)
    return (heard[0] - began) * 1000


# --- lictor web itself, on files

# What the page promises: ms of CPU and kB of transfer for the first view, MB of memory.
FIRST_VIEW = ("/", "/static/page.css", "/static/page.js", "/static/icon.svg")
PAGES = (
    "/results",
    "/results?status=fail&q=x3",
    "/policies",
    "/namespaces",
    "/resources",
    "/print",
)
BARS = (300.0, 100.0, 150.0)


def write_files(folder: Path, options: argparse.Namespace) -> Iterator[Path]:
    """The same results as one JSON list of reports, as one report, and as YAML."""
    from lictor.core.report.yaml_text import render_yaml

    dice = random.Random(17)
    count = options.results // options.each
    reports = [make_report(number, options, dice) for number in range(count)]
    (folder / "list.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": reports})
    )
    entries = [
        {**each, "resources": [report["scope"]]} for report in reports for each in report["results"]
    ]
    whole = {name: part for name, part in reports[0].items() if name != "scope"}
    (folder / "report.json").write_text(json.dumps({**whole, "results": entries}))
    with (folder / "documents.yaml").open("w") as file:
        file.writelines(f"---\n{render_yaml(report)}" for report in reports)
    yield from (folder / name for name in ("list.json", "report.json", "documents.yaml"))


def read_process(pid: int) -> tuple[float, float, float]:
    """Of a process: seconds of CPU, MB now, MB at most."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {line[:5]: int(line.split()[1]) / 1024 for line in lines if line.startswith("Vm")}
    return (int(fields[11]) + int(fields[12])) / 100, sizes["VmRSS"], sizes["VmHWM"]


def view(host: str, path: str, cookie: str = "") -> tuple[int, str]:
    """Bytes of an answer as they are sent, and the cookie that came with it."""
    connection = HTTPConnection(host, timeout=60)
    connection.request("GET", path, headers={"accept-encoding": "gzip", "cookie": cookie})
    answer = connection.getresponse()
    size = len(answer.read())
    assert answer.status in (200, 303), answer.status
    connection.close()
    return size, (answer.getheader("set-cookie") or "").partition(";")[0]


def measure_file(path: Path) -> bool:
    """Start the page, sign in, look; are the promises kept?"""
    command = [sys.executable, "-m", "lictor", "web", "--port", "0", "--report", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = next(word for word in process.stdout.readline().split() if "://" in word)
            host, _, start = address.removeprefix("http://").partition("/")
            reading, _, _ = read_process(process.pid)
            _, cookie = view(host, f"/{start}")
            sent = sum(view(host, each, cookie)[0] for each in FIRST_VIEW)
            first = (read_process(process.pid)[0] - reading) * 1000
            for page in (*PAGES, "/results.csv", "/results.json"):
                view(host, page, cookie)
            _, now, most = read_process(process.pid)
        finally:
            process.terminate()
    print(
        f"{path.name}: read in {reading:.1f} s of CPU; first view {first:.0f} ms of CPU, "
        f"{sent / 1000:.1f} kB; {now:.0f} MB after all pages and exports, {most:.0f} MB at most"
    )
    return all(found <= bar for found, bar in zip((first, sent / 1000, most), BARS, strict=True))


def run_files(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept = [measure_file(path) for path in write_files(Path(folder), options)]
    print("bars kept" if all(kept) else "bars NOT kept: 300 ms of CPU, 100 kB, 150 MB")
    raise SystemExit(0 if all(kept) else 1)


def main() -> None:
    """Start the server, then the process that is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=int, default=100_000)
    parser.add_argument("--namespaces", type=int, default=300)
    parser.add_argument("--each", type=int, default=10, help="results of a report")
    parser.add_argument("--files", action="store_true", help="measure `lictor web --report`")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options))
    elif options.files:
        run_files(options)
    elif options.measure:
        sys.stdout.write(json.dumps(asyncio.run(measure(options.measure))))
    else:
        run_both(options)


def run_both(options: argparse.Namespace) -> None:
    words = [f"--{name}={getattr(options, name)}" for name in ("results", "namespaces", "each")]
    me = [sys.executable, __file__]
    pipe = subprocess.PIPE
    with subprocess.Popen([*me, "--serve", *words], stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        url = "".join(islice(server.stdout, 1)).strip()
        done = subprocess.run([*me, f"--measure={url}"], stdout=pipe, text=True, check=True)
        server.communicate("")
    for name, value in json.loads(done.stdout).items():
        print(f"{value:12,.1f}  {name}")


if __name__ == "__main__":
    main()
