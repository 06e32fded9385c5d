"""The scan at a size that a test can afford; `tools/bench/scan.py` measures the real one."""

import time
from pathlib import Path

from control_plane.install import install_lictor
from control_plane.local import LocalCluster
from control_plane.manifests import apply_objects
from test_reports import POLICY, Scene, sum_up, wait

COUNT = 600


def test_two_replicas_share_and_a_new_one_judges_nothing_again(own_cluster: LocalCluster) -> None:
    installation = install_lictor(own_cluster, replicas=0)
    scene = Scene(own_cluster, installation)
    apply_objects(own_cluster, [POLICY])
    scene.fill("shop", COUNT)
    replicas = [scene.start(), scene.start()]
    wait(lambda: len(scene.reports("shop")) == COUNT, 120)
    wait(lambda: sum(note["judged"] for note in scene.notes()) >= COUNT, 30)
    notes = scene.notes()
    total = sum(note["judged"] for note in notes)
    assert all(0.35 < note["judged"] / total < 0.65 for note in notes)
    assert all(read_peak(replica.process.pid) < 200 for replica in replicas)
    installation.stop()
    # A new process finds what was judged on the reports.
    scene.plane.kubectl("label", "cm", "map-1", "-n", "shop", "changed=yes")
    scene.start()
    wait(lambda: [note for note in scene.notes() if note["seen"] >= COUNT], 60)
    time.sleep(4)  # two notes later
    assert [note["judged"] for note in scene.notes()] == [1]
    assert sum_up(scene.reports("shop")) == (COUNT // 2, COUNT // 2)
    installation.stop()


def read_peak(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
