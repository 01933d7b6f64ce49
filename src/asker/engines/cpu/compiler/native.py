"""From LLVM's language to a function that can be called: machine code, and its place in the cache."""

import ctypes
import hashlib
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from asker.engines.cpu.compiler.expressions import CONTRACT, Kind
from asker.engines.cpu.compiler.llvm import REFUSED, to_llvm
from asker.engines.cpu.machine_code import LONGEST_NAME, beside, kept_code

HEAD = object.__basicsize__
"""The size of what every Python object begins with; the data of a NumPy array stand behind it."""
MARK = b"asker: an object file"
C_TYPES: dict[str, Any] = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
    "bool": ctypes.c_bool,
}  # fmt: skip


def kinds_of(arguments: tuple[Any, ...]) -> tuple[Kind, ...]:
    """The kind of each argument: arrays that are contiguous, and numbers."""
    return tuple(map(_kind, arguments))


def _kind(x: Any) -> Kind:
    if not isinstance(x, np.ndarray):
        return Kind(np.min_scalar_type(x).name if isinstance(x, bool | np.bool_) else np.asarray(x).dtype.name)
    if type(x) is not np.ndarray or not x.flags.c_contiguous or x.dtype != np.dtype(x.dtype.name):
        raise TypeError(f"expected a contiguous array, got a {type(x).__name__} of {x.dtype} with strides {x.strides}")
    return Kind(x.dtype.name, x.ndim)


class Native:
    """The machine code of the last function of a source, for one kind of arguments."""

    def __init__(
        self, name: str, source: str, kinds: tuple[Kind, ...], told: Callable[[str], None], fast: str = CONTRACT
    ):
        """`told` is called with the name where the code is not in the cache; `fast` as in `to_llvm`."""
        made_of = (source, kinds, HEAD, fast, _target())
        symbol = f"{name[:LONGEST_NAME]}-{hashlib.sha256(repr(made_of).encode()).hexdigest()}"
        code = kept_code().read(symbol)
        if code is None or not _has_loaded(code):
            told(name)
            code = _machine_code(to_llvm(source, symbol, kinds, HEAD, fast))
            _has_loaded(code)
            kept_code().write(symbol, code)
        expected = [np.ndarray, *[np.dtype(kind.dtype) for kind in kinds if kind.ndim]]
        self._types = (ctypes.c_void_p * len(expected))(*map(id, expected))
        argument_types = [ctypes.py_object if kind.ndim else C_TYPES[kind.dtype] for kind in kinds]
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *argument_types)  # lets other threads run
        self._call = prototype(_engine().get_function_address(symbol))

    def __call__(self, *arguments: Any) -> int | None:
        """What the function returns, 0 where that is nothing; None where the arguments are of other kinds."""
        try:
            returned: int = self._call(self._types, *arguments)
        except ctypes.ArgumentError:  # a number in place of an array, or the other way round
            return None
        return None if returned == REFUSED else returned


def _machine_code(text: str) -> bytes:
    import llvmlite.binding as llvm

    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.slp_vectorization = tuning.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return MARK + bytes(machine.emit_object(module))


def _has_loaded(code: bytes) -> bool:
    """Whether this is machine code; then its function can be found in the engine from now on."""
    import llvmlite.binding as llvm

    if not code.startswith(MARK):  # LLVM does not look before it reads
        return False
    _engine().add_object_file(llvm.ObjectFileRef.from_data(code[len(MARK) :]))
    _engine().finalize_object()
    return True


@cache
def _engine() -> Any:
    """What holds all machine code, as long as the process lives."""
    import llvmlite.binding as llvm

    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine())


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
def _target() -> tuple[str, ...]:
    """All of the machine and the compiler that decides what the code is."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    ours = hashlib.sha256(beside(__file__).encode()).hexdigest()
    return (llvm.get_process_triple(), llvm.get_host_cpu_name(), features, version("llvmlite"), ours)
