"""SHA-256 without OpenSSL, which `hashlib` loads: 2 to 3 ms of each start.

The standard library's `random` takes its SHA-512 in the same way.
"""

try:
    from _sha2 import sha256
except ImportError:
    try:
        from _sha256 import sha256  # before Python 3.12
    except ImportError:
        from hashlib import sha256

__all__ = ["sha256"]
