"""Compilers of CUDA sources that need no device: nvcc, and NVRTC from a toolkit or from wheels."""

from __future__ import annotations

import ctypes
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["ARCHITECTURES", "HALF", "compile_with_nvcc", "compile_with_nvrtc", "nvcc", "nvrtc"]

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
