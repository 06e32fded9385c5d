"""Machine code on disk, the process that makes it, and the clock of those who run it."""

import hashlib
import os
import subprocess
import sys
import threading
import time

import pytest
import wasmtime

from lictor.addons.kubewarden.modules.compile_process import compile_apart, limit_memory
from lictor.addons.kubewarden.modules.compiled_modules import CompiledModules
from lictor.addons.kubewarden.modules.module_runtime import (
    CompileLimits,
    EpochTicker,
    ModuleRuntime,
    count_ticks,
    find_engine,
)
from lictor.addons.kubewarden.runtime.engine import make_engine
from lictor.core.errors import ModuleError

MODULE = bytes(wasmtime.wat2wasm('(module (func (export "f") (result i32) i32.const 1))'))
OTHER = bytes(wasmtime.wat2wasm('(module (func (export "f") (result i32) i32.const 2))'))
_MIB = 2**20


@pytest.fixture(scope="module")
def engine():
    return make_engine()


class Compiler:
    """Counts how often it is asked."""

    def __init__(self, engine) -> None:
        self._engine = engine
        self.asked = 0

    def __call__(self, content: bytes, namespace: str) -> bytes:
        self.asked += 1
        return bytes(wasmtime.Module(self._engine, content).serialize())


def run(module) -> int:
    store = wasmtime.Store(module.engine)
    store.set_epoch_deadline(1_000_000)
    return wasmtime.Instance(store, module.native, []).exports(store)["f"](store)


def test_machine_code_is_made_once_and_kept_for_us_alone(tmp_path, engine) -> None:
    compiler, folder = Compiler(engine), tmp_path / "compiled"
    for _ in range(2):
        module = CompiledModules(folder, engine, compiler).load(MODULE)
        assert run(module) == 1
    assert compiler.asked == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.glob("*.code")
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}
    assert file.stat().st_size


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, engine, mode) -> None:
    compiler, folder = Compiler(engine), tmp_path / "compiled"
    CompiledModules(folder, engine, compiler).load(MODULE)
    folder.chmod(mode)
    before = list(folder.iterdir())
    assert run(CompiledModules(folder, engine, compiler).load(OTHER)) == 2
    assert run(CompiledModules(folder, engine, compiler).load(MODULE)) == 1
    assert compiler.asked == 3
    assert list(folder.iterdir()) == before


def test_a_link_in_the_place_of_the_folder_is_not_used(tmp_path, engine) -> None:
    compiler = Compiler(engine)
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "compiled").symlink_to(tmp_path / "real")
    assert run(CompiledModules(tmp_path / "compiled", engine, compiler).load(MODULE)) == 1
    assert list((tmp_path / "real").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_that_takes_the_place_of_ours_is_not_used(tmp_path, engine) -> None:
    """Whoever may write beside the folder gives a module the machine code of another of ours."""
    compiler, folder = Compiler(engine), tmp_path / "compiled"
    modules = CompiledModules(folder, engine, compiler)
    assert run(modules.load(MODULE)) == 1
    assert run(modules.load(OTHER)) == 2
    digests = [hashlib.sha256(content).hexdigest() for content in (MODULE, OTHER)]
    (code,) = folder.glob(f"{digests[1]}-*.code")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.link(code, theirs / code.name.replace(digests[1], digests[0]))
    folder.rename(tmp_path / "away")
    folder.symlink_to(theirs)
    assert run(modules.load(MODULE)) == 1


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_belongs_to_others_is_not_run(tmp_path, engine, what) -> None:
    compiler, folder = Compiler(engine), tmp_path / "compiled"
    CompiledModules(folder, engine, compiler).load(MODULE)
    (file,) = folder.glob("*.code")
    os.chown(folder if what == "folder" else file, 12345, 12345)
    assert run(CompiledModules(folder, engine, compiler).load(MODULE)) == 1
    assert compiler.asked == 2


def _make_writable(file) -> None:
    file.chmod(0o666)


def _change(file) -> None:
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)


def _cut(file) -> None:
    file.write_bytes(file.read_bytes()[:100])


def _link(file) -> None:
    away = file.parent.parent / "away"
    file.rename(away)
    file.symlink_to(away)


@pytest.mark.parametrize("damage", [_make_writable, _change, _cut, _link])
def test_what_does_not_fit_is_compiled_again(tmp_path, engine, damage) -> None:
    compiler, folder = Compiler(engine), tmp_path / "compiled"
    CompiledModules(folder, engine, compiler).load(MODULE)
    (file,) = folder.glob("*.code")
    damage(file)
    assert run(CompiledModules(folder, engine, compiler).load(MODULE)) == 1
    assert compiler.asked == 2
    (file,) = folder.glob("*.code")
    assert file.is_file()
    assert not file.is_symlink()


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path, engine) -> None:
    (tmp_path / "file").write_bytes(b"")
    compiled = CompiledModules(tmp_path / "file" / "compiled", engine, Compiler(engine))
    assert run(compiled.load(MODULE)) == 1


def test_processes_compile_a_module_once(tmp_path, engine) -> None:
    began, made = threading.Event(), []

    def compile_slowly(content: bytes, namespace: str) -> bytes:
        began.set()
        time.sleep(0.3)
        made.append(namespace)
        return bytes(wasmtime.Module(engine, content).serialize())

    # Files are locked by whoever opened them: two stores are as good as two processes.
    first, second = (CompiledModules(tmp_path, engine, compile_slowly) for _ in range(2))
    tmp_path.chmod(0o700)
    thread = threading.Thread(target=first.load, args=(MODULE,))
    thread.start()
    began.wait()
    assert run(second.load(MODULE)) == 1
    thread.join()
    assert len(made) == 1


def test_the_oldest_machine_code_goes_first(tmp_path, engine) -> None:
    folder = tmp_path / "compiled"
    compiled = CompiledModules(folder, engine, Compiler(engine), most_bytes=20_000)
    for number in range(4):
        content = f"(module (func (export {chr(34)}f{number}{chr(34)})))"
        last = compiled.load(bytes(wasmtime.wat2wasm(content))).digest
    (kept,) = folder.glob("*.code")
    assert kept.name.startswith(last)
    (lock,) = folder.glob("*.lock")
    assert lock.name.startswith(last)


def make_loud(number: int) -> bytes:
    return bytes(wasmtime.wat2wasm(f'(module (func (export "f{number}")))'))


def test_a_namespace_does_not_hold_up_others(tmp_path) -> None:
    release = threading.Event()
    asked: list[float] = []

    def compile_code(content: bytes, seconds: float, memory_bytes: int) -> bytes:
        asked.append(seconds)
        if seconds == 1:
            release.wait(60)
        return bytes(wasmtime.Module(find_engine(), content).serialize())

    limits = CompileLimits(seconds=2, seconds_in_namespaces=1)
    runtime = ModuleRuntime(tmp_path, limits, compile_code)
    threads = [
        threading.Thread(target=runtime.compile, args=(make_loud(number), "team"))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    while not asked:
        time.sleep(0.01)
    # The same module as one of theirs, and another.
    for number in (0, 9):
        assert runtime.compile(make_loud(number))
    assert asked.count(1) == 1
    release.set()
    for thread in threads:
        thread.join()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["of-cluster", "of-namespaces"]


# --- the process


def test_a_process_makes_what_the_engine_takes(tmp_path, engine) -> None:
    code = compile_apart(MODULE, 60, 2048 * _MIB)
    assert run(CompiledModules(None, engine, lambda *_: code).load(MODULE)) == 1


def test_what_the_compiler_says_is_told() -> None:
    with pytest.raises(ModuleError, match="cannot be compiled"):
        compile_apart(b"\x00asm\x01\x00\x00\x00\xff\x00", 60, 2048 * _MIB)


def make_large() -> bytes:
    """A module that is cheap to write and dear to compile: seconds, and 300 MiB."""
    steps = "".join(f"local.get 0 i32.load offset={at * 4} i32.xor " for at in range(100_000))
    text = f"(module (memory 1) (func (param i32) i32.const 1 {steps} drop))"
    return bytes(wasmtime.wat2wasm(text))


def test_compiling_has_a_time_limit() -> None:
    content = make_large()
    begin = time.monotonic()
    with pytest.raises(ModuleError, match=r"not compiled within 0.5 s"):
        compile_apart(content, 0.5, 2048 * _MIB)
    assert time.monotonic() - begin < 30


def test_compiling_has_a_memory_limit() -> None:
    with pytest.raises(ModuleError, match="may take 100 MiB"):
        compile_apart(make_large(), 60, 100 * _MIB)


def test_the_process_gets_nothing_of_our_environment(monkeypatch, tmp_path) -> None:
    # Whoever could name a folder of modules could run code there.
    (tmp_path / "wasmtime.py").write_text("raise SystemExit(9)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert compile_apart(MODULE, 60, 2048 * _MIB)


@pytest.mark.parametrize(
    ("limit", "current", "cached", "expected"),
    [
        ("max", "100", "0", 2000),
        (str(1000 * _MIB), str(700 * _MIB), "0", 300),
        (str(1000 * _MIB), str(900 * _MIB), str(400 * _MIB), 500),
        (str(1000 * _MIB), str(990 * _MIB), "0", 256),
        (str(9000 * _MIB), str(1 * _MIB), "0", 2000),
    ],
)
def test_compiling_takes_no_more_than_the_container_has(
    tmp_path, limit, current, cached, expected
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{current}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")
    assert limit_memory(2000 * _MIB, tmp_path) == expected * _MIB
    assert limit_memory(2000 * _MIB, tmp_path / "none") == 2000 * _MIB


def test_a_process_with_a_limit_of_its_own_loads_modules(tmp_path) -> None:
    """As the processes of the webhook have: wasmtime must not reserve more than they may."""
    (tmp_path / "a.wasm").write_bytes(MODULE)
    program = f"""
import resource
from pathlib import Path
from lictor.addons.kubewarden.modules.module_store import ModuleSettings, ModuleStore
resource.setrlimit(resource.RLIMIT_DATA, (300 * 2**20, resource.RLIM_INFINITY))
folder = Path({str(tmp_path)!r})
store = ModuleStore(ModuleSettings(folder=folder / "store", private_folder=folder / "private"))
print(store.load(f"file://{{folder}}/a.wasm").digest)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == hashlib.sha256(MODULE).hexdigest(), done.stderr


# --- the clock


def make_loop(engine, ticks: int):
    module = wasmtime.Module(engine, '(module (func (export "f") (loop br 0)))')
    store = wasmtime.Store(engine)
    store.set_epoch_deadline(ticks)
    function = wasmtime.Instance(store, module, []).exports(store)["f"]

    def loop() -> None:
        store.set_epoch_deadline(ticks)
        function(store)

    return loop


def test_the_clock_ticks_slowly_while_nobody_computes_and_stops_those_who_do() -> None:
    engine = make_engine()
    ticker = EpochTicker(engine, 0.01)
    ticker.start()
    ticker.start()
    assert sum(thread.name == "wasm-epochs" for thread in threading.enumerate()) >= 1
    loop = make_loop(engine, 20)
    # It may have gone to sleep by now.
    time.sleep(1.2)
    begin = time.monotonic()
    with pytest.raises(wasmtime.Trap, match="interrupt"):
        loop()
    assert 0.15 < time.monotonic() - begin < 30


@pytest.mark.parametrize(
    ("passed", "ticks"), [(0.0, 1), (0.0101, 1), (0.025, 2), (0.041, 4), (9.0, 4)]
)
def test_a_clock_that_wakes_late_makes_up_for_it(passed, ticks) -> None:
    assert count_ticks(passed, 0.01) == ticks


def test_the_clock_goes_on_in_a_process_that_was_forked() -> None:
    engine = make_engine()
    ticker = EpochTicker(engine, 0.01)
    ticker.start()
    loop = make_loop(engine, 5)
    child = os.fork()
    if not child:
        try:
            loop()
        except wasmtime.Trap:
            os._exit(7)
        os._exit(1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the guest was never stopped")
    assert os.waitstatus_to_exitcode(status) == 7
