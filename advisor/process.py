"""Settings of the process that pay on large captures: memory of the C library (without glibc nothing
happens), and threads and pages of NumPy."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

#: Options of mallopt (malloc.h) and advice for madvise (sys/mman.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_HUGE_PAGES = 14
_HUGE_PAGE = 2 << 20
#: Memory of the arrays of a small capture, and the largest single allocation: larger ones would not come
#: from the heap.
_SMALL, _MOST = 64 << 20, 1 << 30


def set_up() -> None:
    """Let glibc keep the memory of freed arrays: else each array of some MB is memory that the system has
    to clear, a quarter of the processor time of a capture of 3 million kernels. Called before NumPy is
    imported."""
    # Matrices here are tall and thin: the threads of OpenBLAS mostly wait for each other, busily. One takes
    # an eighth of the processor time for the triangle of 130,000 samples; starting more takes a third of the
    # time of a capture of 6 MB.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Huge pages are cleared whole for each array that lives a moment.
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    with suppress(OSError, AttributeError, TypeError):
        glibc = ctypes.CDLL(None)
        glibc.mallopt(_MMAP_THRESHOLD, 2**31 - 1)  # the largest int
        glibc.mallopt(_TRIM_THRESHOLD, -1)  # never
        glibc.mallopt(_ARENA_MAX, 1)  # memory that one thread frees serves all
        expect(_SMALL)


def expect(size: int) -> None:
    """Use huge pages for the next `size` bytes of the heap: each page of 4 KiB costs some us when it is first
    written to, in total a tenth of a diagnosis. Memory that is never written to is not allocated."""
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
