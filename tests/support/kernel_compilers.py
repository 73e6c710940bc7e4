"""Compilers of CUDA sources that need no device: nvcc, and NVRTC from a toolkit or from wheels."""

import ctypes
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ARCHITECTURES = ("80", "90")
HALF = "#include <cuda_fp16.h>\n"
"""What kernels of half precision need; NVRTC has no headers of its own."""


def nvcc() -> str | None:
    """The path of nvcc, if it is installed."""
    return shutil.which("nvcc")


def compile_with_nvcc(path: str, text: str, folder: Path) -> None:
    """AssertionError with the compiler's words if it refuses."""
    source = folder / "kernels.cu"
    source.write_text(HALF + text)
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    command = [path, "-std=c++17", "-fatbin", *codes, "--threads", "2", "-Xcicc", "-O1"]
    command += ["-Xptxas", "-O1", "-o", str(folder / "kernels.fatbin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


def _packages() -> Iterator[Path]:
    """Where wheels of NVIDIA's and CuPy's lie."""
    for folder in {*site.getsitepackages(), site.getusersitepackages(), *sys.path}:
        yield Path(folder)


def nvrtc() -> Any:
    """The NVRTC library: a toolkit's, or that of the wheels CuPy depends on; None if there is none.

    Its companion, which it opens by name, is found beside it.
    """
    names = ["libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"]
    for folder in _packages():
        for pattern in ("nvidia/cu13/lib/libnvrtc.so.*", "nvidia/cuda_nvrtc/lib/libnvrtc.so.*"):
            names += [str(path) for path in sorted(folder.glob(pattern)) if "alt" not in path.name]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _headers() -> str | None:
    """A folder with cuda_fp16.h."""
    folders = [Path("/usr/local/cuda/include")]
    for packages in _packages():
        folders += packages.glob("nvidia/cu13/include")
        folders += packages.glob("nvidia/cuda_runtime/include")
        folders += packages.glob("cupy/_core/include/cupy/_cuda/*")
    return next((str(f) for f in folders if (f / "cuda_fp16.h").exists()), None)


def compile_with_nvrtc(
    library: Any, prelude: str, kernels: list[str], architecture: str = "compute_80"
) -> int:
    """Compile them as one program; how many there were (without headers: none of half precision).

    To PTX by default, as assembling takes twice the time of all else; AssertionError with the
    compiler's words if it refuses.
    """
    headers = _headers()
    if headers is None:
        kernels = [k for k in kernels if not re.search(r"__half|__hisnan", k)]
    text = (HALF if headers else "") + prelude + "\n".join(kernels)
    options = [f"-arch={architecture}", "--std=c++17", *([f"-I{headers}"] if headers else [])]
    status, log = _run(library, text, options)
    assert status == 0, log[-4000:]
    return len(kernels)


def _run(library: Any, text: str, options: list[str]) -> tuple[int, str]:
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
    given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    status = library.nvrtcCompileProgram(program, len(options), given)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(max(size.value, 1))
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return status, log.value.decode()


class Resources(NamedTuple):
    """What a kernel takes of a device, by ptxas."""

    registers: int
    stack_bytes: int
    """Of a thread: values that found no register, and arrays of its own."""
    shared_bytes: int


_USED = re.compile(
    r"Compiling entry function '(\w+)' for.*?(\d+) bytes stack frame.*?Used (\d+) registers"
    r"([^\n]*)",
    re.S,
)


def architectures(wanted: Iterable[str]) -> list[str]:
    """Those of some architectures that the toolkit has."""
    listed = subprocess.run([_tool("nvcc"), "--list-gpu-code"], capture_output=True, text=True)
    return [a for a in wanted if f"sm_{a}" in listed.stdout.split()]


def resources(
    prelude: str, sources: Iterable[str], wanted: Sequence[str], folder: Path
) -> dict[str, dict[str, Resources]]:
    """Architecture -> name -> what each kernel takes, as the driver's compiler would make it.

    Sources may define the same helpers: each has a namespace of its own.
    """
    spaces = (f"namespace k{i} {{\n{_unguarded(s)}\n}}\n" for i, s in enumerate(sources))
    source, ptx = folder / "resources.cu", folder / "resources.ptx"
    source.write_text(HALF + prelude + "".join(spaces))
    lowest = f"-arch=compute_{min(wanted, key=int)}"
    _done([_tool("nvcc"), "-w", "-std=c++17", "-ptx", lowest, "-o", str(ptx), str(source)])
    found = {}
    for a in wanted:
        log = _done([_tool("ptxas"), "-v", f"-arch=sm_{a}", str(ptx), "-o", "/dev/null"])
        found[a] = {
            name: Resources(int(registers), int(stack), _shared_bytes(rest))
            for name, stack, registers, rest in _USED.findall(log)
        }
    return found


_GUARDED = re.compile(r"^#ifndef (nn_\w+)\n#define \1\n(.*?)^#endif$", re.M | re.S)


def _unguarded(source: str) -> str:
    """Without the guards of definitions that another namespace has, too."""
    return _GUARDED.sub(r"\2", source)


def _shared_bytes(rest: str) -> int:
    found = re.search(r"(\d+) bytes smem", rest)
    return int(found[1]) if found else 0


def _tool(name: str) -> str:
    """A program of the toolkit that nvcc belongs to."""
    path = nvcc()
    assert path is not None
    return str(Path(path).resolve().with_name(name))


def _done(command: list[str]) -> str:
    """What a command says; AssertionError with that if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr + done.stdout
