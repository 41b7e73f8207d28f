"""Settings of the process that pay: Python's garbage collector, threads of NumPy, and memory of the C library
(without glibc nothing happens). Measured on 1.0 M kernels but where said."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
from contextlib import suppress

#: Options of mallopt (malloc.h) and advice for madvise (sys/mman.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_HUGE_PAGES = 14
_HUGE_PAGE = 2 << 20
#: The largest single allocation: larger ones would not come from the heap.
_MOST = 1 << 30
#: After so many new containers Python looks for circles of them that nothing uses: more than one capture
#: leaves (150,000). Twelve in one process need no more memory than with Python's own 700.
_NEW_CONTAINERS = 200_000


_THREADS = "OPENBLAS_NUM_THREADS"
#: Variables of the environment that are settings of this process alone.
_ours: set[str] = set()


def environment() -> dict[str, str]:
    """The environment for programs of the user: as it was before this process changed its own."""
    return {name: value for name, value in os.environ.items() if name not in _ours}


def set_up() -> None:
    """At the start of the command line, before NumPy is imported."""
    # What is made here stays until the end, when the system takes all at once: looking for circles among it
    # takes 0.3 of the processor time of a capture of 6 MB, most of it at exit, and 0.1 of 1.0 M kernels.
    gc.set_threshold(_NEW_CONTAINERS)
    atexit.register(gc.freeze)
    # Matrices here are tall and thin: the threads of OpenBLAS mostly wait for each other, busily. One takes
    # 0.73 of the processor time and 0.8 of the time.
    if _THREADS not in os.environ:
        os.environ[_THREADS] = "1"
        _ours.add(_THREADS)
    # Memory of freed arrays is kept for others: else each of some MB is memory that the system has to clear.
    # Together with `expect` that takes 0.85 of the time and 80 MB less.
    with suppress(OSError, AttributeError, TypeError):
        glibc = ctypes.CDLL(None)
        glibc.mallopt(_MMAP_THRESHOLD, 2**31 - 1)  # the largest int
        glibc.mallopt(_TRIM_THRESHOLD, -1)  # never
        glibc.mallopt(_ARENA_MAX, 1)  # memory that one thread frees serves all


def expect(size: int) -> None:
    """Before a large capture is read: use huge pages for the next `size` bytes of the heap, as each page of
    4 KiB costs some us when it is first written to. It takes 0.88 of the time. Memory that is never written
    to is not allocated."""
    with suppress(OSError, AttributeError, TypeError):
        glibc = ctypes.CDLL(None)
        glibc.malloc.restype = ctypes.c_void_p
        found = []
        while size > 0 and (at := glibc.malloc(ctypes.c_size_t(min(size, _MOST)))):
            found.append(at)
            begin, end = -(-at // _HUGE_PAGE) * _HUGE_PAGE, (at + min(size, _MOST)) & -_HUGE_PAGE
            if end > begin:
                glibc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _HUGE_PAGES)
            size -= _MOST
        for at in found:
            glibc.free(ctypes.c_void_p(at))


def give_back() -> None:
    """Return free memory to the system."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
