"""The command that measures the calls of one kernel, with the tool of the GPU's vendor."""

from __future__ import annotations

import re

#: Names of functions that kernels of many libraries have: `kernel`, `Kernel2`, `device_kernel`.
_SHARED = re.compile(r"(?:device_)?kernel\d*$", re.IGNORECASE)
_MOST_OF_A_NAME = 80


def measuring_command(name: str, short: str, vendor: str) -> str:
    """The command that measures some calls of one kernel, demangled and `short` name, with the tool of the
    GPU's vendor; of all kernels where the capture names none."""
    if not name and vendor == "AMD":
        return "rocprof-compute profile --name measured -- COMMAND"
    if not name:
        return "ncu --set full --launch-skip 50 --launch-count 5 COMMAND"
    path = short if name.startswith("_Z") else _path(name)  # a mangled name
    base = path.split("<")[0].split("(")[0].split("::")[-1].strip() or short
    if vendor == "AMD":
        return f"rocprof-compute profile --name measured --kernel {_pattern(base)} -- COMMAND"
    of, pattern = "function", f"^{_pattern(base)}" + ("$" if base[-1].isalnum() else "")  # or it was cut
    if _SHARED.match(base) and path != base:
        of, pattern = "demangled", f"(^|[^a-zA-Z0-9_]){_pattern(path)}"
    which = f"--kernel-name-base {of} -k 'regex:{pattern}' --launch-skip 50 --launch-count 5"
    return f"ncu --set full {which} COMMAND"


def _path(name: str) -> str:
    """A demangled name without the type before it and its parameters: ``void a::kernel<int>(T)`` ->
    ``a::kernel<int>``. The type may be a template of its own."""
    depth = start = 0
    for i, char in enumerate(name):
        if char == "(" and not depth:
            return name[start:i]
        depth += (char == "<") - (char == ">")
        if char == " " and not depth:
            start = i + 1
    return name[start:]


def _pattern(name: str) -> str:
    """The name as a regular expression that a shell takes."""
    return "".join(c if c.isalnum() or c == "_" else "." for c in name)[:_MOST_OF_A_NAME]
