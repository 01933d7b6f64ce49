"""Machine code: its compilation by LLVM, its cache on disk and the listeners that are notified of compilations.

Each compiled function is one file, written atomically (`asker.io.cache.Kept`).  The file name contains a digest of
everything that determines the code.
"""

import hashlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from asker.io.cache import kept_code

on_compile: list[Callable[[str], None]] = []
"""Callbacks that receive the name of a function when it is compiled because the cache does not contain its code."""
MAX_NAME_LENGTH = 40  # a file name has at most 255 bytes
MAGIC = b"asker: an object file"


def notify_compile(name: str) -> None:
    """Call all listeners in `on_compile`."""
    for listener in on_compile:
        listener(name)


@cache
def folder_source(path: str) -> str:
    """Return the source text of all modules in the folder of `path`: cached output depends on it."""
    return "\0".join(file.read_text(encoding="utf-8") for file in sorted(Path(path).parent.glob("*.py")))


class Code:
    """The machine code of one function; `make` compiles it, or loads it from the cache."""

    def __init__(
        self,
        name: str,
        key: Any,
        text: Callable[[str], str],
        on_miss: Callable[[str], None],
        slp_vectorize: bool = True,
    ):
        """
        key            everything that determines the code, except the machine and the version of LLVM
        text           maps a symbol to a module of LLVM IR that defines it
        on_miss        called with the name if the code is not in the cache
        slp_vectorize  run LLVM's SLP vectoriser, which is slow on long straight-line code
        """
        self.symbol = f"{name[:MAX_NAME_LENGTH]}-{_digest(key, slp_vectorize)}"
        self.slp_vectorize, self.address = slp_vectorize, 0
        self.engine: _JitEngine | None = None
        self.cached = kept_code().read(self.symbol)
        self.text = ""
        if self.cached is None or not self.cached.startswith(MAGIC):  # LLVM does not validate an object file
            on_miss(name)
            self.cached, self.text = None, text(self.symbol)

    def make(self) -> int:
        """Return the address of the function, ready to be called."""
        with _llvm_lock:
            if not self.address:
                code = self.cached or _compile_to_object(self.text, self.slp_vectorize)
                self.engine = _current_engine()
                address = self.engine.load(self.symbol, code)
                if self.text:
                    kept_code().write(self.symbol, code)
                self.address, self.cached, self.text = address, None, ""
            return self.address


_llvm_lock = threading.Lock()  # LLVM's engines are not thread-safe


def _reset_after_fork() -> None:
    """Replace the lock: the thread that holds it does not exist in a forked process."""
    global _llvm_lock
    _llvm_lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # LLVM's internal locks must be free during a fork
    os.register_at_fork(
        before=lambda: _llvm_lock.acquire(),
        after_in_parent=lambda: _llvm_lock.release(),
        after_in_child=_reset_after_fork,
    )


def _digest(key: Any, slp_vectorize: bool) -> str:
    return hashlib.sha256(repr((key, slp_vectorize, _target())).encode()).hexdigest()


def _compile_to_object(text: str, slp_vectorize: bool) -> bytes:
    import llvmlite.binding as llvm
    from llvmlite.binding.newpassmanagers import NewPassManager

    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.slp_vectorization, tuning.loop_vectorization = slp_vectorize, True
    tuning.loop_unrolling = False  # an eighth of the compilation time, and code of the same speed
    builder = llvm.create_pass_builder(machine, tuning)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    NewPassManager._dispose(passes)  # llvmlite's class inherits a `_dispose` that frees nothing and leaks 0.13 MB
    passes.detach()
    return MAGIC + bytes(machine.emit_object(module))


class _JitEngine:
    """An MCJIT engine of LLVM with the code of several functions; it is released with the last of them."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        self.n = 0
        self.mcjit = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine())
        weakref.finalize(self, _released.append, self.mcjit).atexit = False

    def load(self, symbol: str, code: bytes) -> int:
        """Load object code and return the address of the function in it."""
        import llvmlite.binding as llvm

        self.mcjit.add_object_file(llvm.ObjectFileRef.from_data(code[len(MAGIC) :]))
        self.mcjit.finalize_object()
        self.n += 1
        address: int = self.mcjit.get_function_address(symbol)
        return address


FUNCTIONS_PER_ENGINE = 32
"""Functions that share an engine.  A separate engine for each function would cost 1 ms and 50 kB."""
_engine: _JitEngine | None = None
_released: deque[Any] = deque()
"""Engines without functions.  A finaliser may run at any time, also while LLVM is running in another thread, so the
engines are closed later, when the next function is loaded."""


def _current_engine() -> _JitEngine:
    """Return the engine that the next function is loaded into.  Each function keeps its engine alive."""
    global _engine
    while _released:
        _released.popleft().close()
    if _engine is None or _engine.n >= FUNCTIONS_PER_ENGINE:
        _engine = _JitEngine()
    return _engine


@cache
def _machine() -> Any:
    return _new_machine()


def _new_machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=cpu, features=features, opt=3, jit=True)


@cache
def vector_length() -> int:
    """Return the number of 64-bit floats in a SIMD register of this CPU."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return 8 if features.get("avx512f") else 4 if features.get("avx") else 2


@cache
def _target() -> tuple[str, ...]:
    """Return the properties of the CPU and of the compiler that determine the generated code."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    ours = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return (llvm.get_process_triple(), llvm.get_host_cpu_name(), features, version("llvmlite"), ours)
