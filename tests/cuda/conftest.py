from support.emulated_cuda import device  # noqa: F401
