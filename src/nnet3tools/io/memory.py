"""The system's free memory, looked at before data of files take a large part of it."""

_LARGE = 1 << 26
"""Bytes below which nothing is checked."""


def lack_of_memory(num_bytes: int) -> str:
    """Text for an error if `num_bytes` are more than the free memory; "" if they are not."""
    if num_bytes <= _LARGE or num_bytes <= (free := free_memory()):
        return ""
    return f"{num_bytes} bytes of memory, of which {free} are free"


def free_memory() -> int:
    """The bytes of memory that programs can still allocate; a large number if unknown."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return 1 << 40
