from emulated_cuda import device  # noqa: F401
