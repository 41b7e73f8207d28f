"""The parts of the budget: what each counts of a device's window."""

#: Part -> what runs, or what the device waits for, while it lasts.
PART_MEANINGS = {
    "compute": "kernels, memsets and graph runs run",
    "communication": "collectives run and nothing else does",
    "htod": "host-to-device copies run and no kernel does",
    "dtoh": "device-to-host copies run and no kernel or upload does",
    "other_copy": "device-to-device and peer copies run and nothing else does",
    "migration": "pages of unified memory migrate and nothing else runs",
    "graph_internal": "idle between two nodes of one graph run",
    "queued": "idle although the next operation had been queued before the gap began, or over 1 ms after its launch",
    "launch_latency": "idle from the return of the launch call to the start of its operation, up to 1 ms",
    "profiler": "idle that the profiler caused: flushes, and node tracing of graph launches",
    "startup": "idle in what happens once: context creation, module loads, set-up of libraries",
    "gc": "idle while Python collects garbage on the feeding thread",
    "gil": "idle while the feeding thread waits for the GIL",
    "alloc": "idle inside an allocation or free call",
    "sync": "idle inside a synchronize call, and in the host code after it up to the next call where that follows within 100 us",
    "copy_call": "idle inside a copy or memset call of the host",
    "launch_call": "idle inside a kernel-launch call of the host",
    "graph_launch_call": "idle inside a graph-launch call, up to its untraced cost",
    "os": "idle while the feeding thread is blocked in an operating-system call",
    "host_gap": "idle with no CUDA call on the feeding thread, between steps or over 1 ms long",
    "host_between_launches": "idle with no CUDA call on the feeding thread, within a step",
    "unified_memory": "idle before pages of unified memory migrate, up to 100 us each time",
    "unknown": "idle whose next operation has no API call in the capture",
}
