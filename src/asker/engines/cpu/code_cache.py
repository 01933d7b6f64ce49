"""Machine code: how LLVM makes it, what is kept of it in the cache folder, and who hears of compiling.

Each compiled function is one file that is whole or not there (`asker.io.cache.Kept`), under a name made from all that
decides what the code is.
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
"""Called with a function's name when it is compiled: for the first time on this machine, or for other types."""
LONGEST_NAME = 40  # a file name has at most 255 bytes
MARK = b"asker: an object file"


def tell_of_compiling(name: str) -> None:
    """Let `on_compile` hear of it."""
    for listener in on_compile:
        listener(name)


@cache
def beside(path: str) -> str:
    """The text of the files beside this one: what they do decides what comes out."""
    return "\0".join(file.read_text(encoding="utf-8") for file in sorted(Path(path).parent.glob("*.py")))


class Code:
    """The machine code of one function, wanted; `make` has LLVM make it, or load what is kept."""

    def __init__(
        self, name: str, made_of: Any, text: Callable[[str], str], told: Callable[[str], None], packed: bool = True
    ):
        """
        made_of  all that decides its code, beside the machine and the version of LLVM
        text     of a symbol: a module in LLVM's language that defines it
        told     is called with the name where the code is not in the cache
        packed   whether LLVM looks for statements that make one on vectors, which takes long where there are many
        """
        self.symbol = f"{name[:LONGEST_NAME]}-{_digest(made_of, packed)}"
        self.packed, self.address = packed, 0
        self.room: _Room | None = None
        self.kept = kept_code().read(self.symbol)
        self.text = ""
        if self.kept is None or not self.kept.startswith(MARK):  # LLVM does not look before it reads
            told(name)
            self.kept, self.text = None, text(self.symbol)

    def make(self) -> int:
        """Where the function is, ready to be called."""
        with _making:
            if not self.address:
                code = self.kept or _made(self.text, self.packed)
                self.room = _room_for_one()
                address = self.room.load(self.symbol, code)
                if self.text:
                    kept_code().write(self.symbol, code)
                self.address, self.kept, self.text = address, None, ""
            return self.address


_making = threading.Lock()  # LLVM's engine is for one thread at a time


def _begin_anew() -> None:
    """A forked process has no thread that could hold a lock."""
    global _making
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):  # LLVM's own locks must be free then
    os.register_at_fork(
        before=lambda: _making.acquire(), after_in_parent=lambda: _making.release(), after_in_child=_begin_anew
    )


def _digest(made_of: Any, packed: bool) -> str:
    return hashlib.sha256(repr((made_of, packed, _target())).encode()).hexdigest()


def _made(text: str, packed: bool) -> bytes:
    import llvmlite.binding as llvm
    from llvmlite.binding.newpassmanagers import NewPassManager

    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.slp_vectorization, tuning.loop_vectorization = packed, True
    tuning.loop_unrolling = False  # an eighth of the time, and as fast a code
    builder = llvm.create_pass_builder(machine, tuning)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    NewPassManager._dispose(passes)  # llvmlite's class inherits another `_dispose`, which frees nothing: 0.13 MB each
    passes.detach()
    return MARK + bytes(machine.emit_object(module))


class _Room:
    """One of LLVM's engines with the machine code of some functions; it is released with the last of these."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        self.n = 0
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine())
        weakref.finalize(self, _released.append, self.engine).atexit = False

    def load(self, symbol: str, code: bytes) -> int:
        """Where the function is from now on."""
        import llvmlite.binding as llvm

        self.engine.add_object_file(llvm.ObjectFileRef.from_data(code[len(MARK) :]))
        self.engine.finalize_object()
        self.n += 1
        address: int = self.engine.get_function_address(symbol)
        return address


FUNCTIONS_OF_A_ROOM = 32
"""An engine of its own for each function would take 1 ms and 50 kB more."""
_room: _Room | None = None
_released: deque[Any] = deque()
"""Engines that nobody needs any more.  Python may find that out anywhere, also while LLVM is at work in another thread;
they are closed when the next function is loaded."""


def _room_for_one() -> _Room:
    """The engine that the next function is loaded into.  Each function keeps its own engine alive."""
    global _room
    while _released:
        _released.popleft().close()
    if _room is None or _room.n >= FUNCTIONS_OF_A_ROOM:
        _room = _Room()
    return _room


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
    """How many 64-bit floats a vector register of this machine holds."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return 8 if features.get("avx512f") else 4 if features.get("avx") else 2


@cache
def _target() -> tuple[str, ...]:
    """All of the machine and the compiler that decides what the code is."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    ours = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return (llvm.get_process_triple(), llvm.get_host_cpu_name(), features, version("llvmlite"), ours)
