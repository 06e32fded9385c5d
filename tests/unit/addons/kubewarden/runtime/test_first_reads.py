"""What is read first by several threads at once must not end the process."""

import os
import subprocess
import sys

# Each child reads for the first time: forked before anybody did.
PROGRAM = """
import os, sys, threading
from lictor.addons.kubewarden.family import host_requests
from lictor.addons.kubewarden.runtime import metadata, rego
from lictor.core.lang.wasm_module import ModuleMetadata

sys.setswitchinterval(1e-6)
CONTENT = metadata.write_metadata(b"\\0asm\\x01\\0\\0\\0", ModuleMetadata(protocol_version="v1"))
CALL = b'{"api_version": "v1", "kind": "Pod", "name": "a", "disable_cache": false}'
ANSWER = b'[{"result": {"response": {"uid": "", "allowed": true}}}]'

def read():
    barrier.wait()
    metadata.read_metadata(CONTENT)
    host_requests.read_request("kubernetes/get_resource", CALL)
    rego.read_opa_answer(ANSWER, {})

died = 0
for _ in range(60):
    pid = os.fork()
    if pid == 0:
        barrier = threading.Barrier(8)
        threads = [threading.Thread(target=read) for _ in range(8)]
        for each in threads: each.start()
        for each in threads: each.join()
        os._exit(0)
    died += os.waitpid(pid, 0)[1] != 0
print(died)
"""


def test_threads_read_for_the_first_time_together() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=os.environ
    )
    assert (done.stdout.strip(), done.stderr) == ("0", "")
