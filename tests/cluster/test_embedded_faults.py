"""What the embedded API server must survive: `kill -9` while it writes; and whom it lets in.

Ten thousand malformed requests are in tests/unit/addons/apiserver.
"""

import threading
import time

import httpx2
import pytest
from control_plane.embedded import EmbeddedCluster

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
WRITERS = 4


@pytest.fixture
def embedded(open_cluster):
    if open_cluster is not EmbeddedCluster:
        pytest.skip("about the embedded API server")
    with EmbeddedCluster(loopback=True) as cluster:
        yield cluster


class Writer:
    """Writes without a pause, and remembers what was acknowledged."""

    def __init__(self, cluster, number):
        self.cluster = cluster
        self.number = number
        self.kept = {}
        """What each object must say; None where it must be gone."""
        self.unsure = set()
        """Objects whose last write was never answered."""
        self.latest = 0
        """The newest version that was acknowledged."""
        self.count = 0
        self.stop = False

    def run(self):
        with self.cluster.connect() as client:
            while not self.stop:
                self.count += 1
                name = f"w{self.number}-{self.count % 50}"
                try:
                    self.write(client, name, self.count)
                except httpx2.HTTPError:
                    self.unsure.add(name)
                    return

    def write(self, client, name, count):
        if self.kept.get(name) is not None and count % 7 == 0:
            answer = client.delete(f"{CONFIG_MAPS}/{name}")
            assert answer.status_code == 200, answer.text
            self.kept[name] = None
            return
        body = {"metadata": {"name": name}, "data": {"count": str(count)}}
        if self.kept.get(name) is None:
            answer = client.post(CONFIG_MAPS, json=body)
        else:
            answer = client.put(f"{CONFIG_MAPS}/{name}", json=body)
        assert answer.is_success, answer.text
        self.kept[name] = str(count)
        self.latest = int(answer.json()["metadata"]["resourceVersion"])


@pytest.mark.parametrize("writes", [6, 60, 200])
def test_no_acknowledged_write_is_lost(embedded, writes):
    writers = [Writer(embedded, number) for number in range(WRITERS)]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while any(writer.count <= writes for writer in writers):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    embedded.stop_api_server(kill=True)
    for writer, thread in zip(writers, threads, strict=True):
        writer.stop = True
        thread.join(30)
    embedded.start_api_server()
    with embedded.connect() as client:
        answer = client.get(CONFIG_MAPS).json()
    found = {
        item["metadata"]["name"]: item["data"]["count"]
        for item in answer["items"]
        if "count" in item.get("data", {})
    }
    assert int(answer["metadata"]["resourceVersion"]) > max(writer.latest for writer in writers)
    for writer in writers:
        assert len(writer.kept) > 5
        for name, count in writer.kept.items():
            if name not in writer.unsure:
                assert found.get(name) == count, name


def test_others_are_not_let_in(embedded):
    with httpx2.Client(base_url=embedded.url, verify=False, trust_env=False) as stranger:
        assert stranger.get("/api/v1/secrets").status_code in (401, 403)
        words = {"Authorization": "Bearer guessed"}
        assert stranger.get("/api/v1/secrets", headers=words).status_code == 401
        assert stranger.get("/readyz").status_code == 200
