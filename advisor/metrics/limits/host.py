"""Limits of the time between operations: gaps of the host, late launches, ticks."""

from __future__ import annotations

# --- idle time of the device, and whose it is -----------------------------------------------------

#: Cost of a graph launch when its nodes are not traced, ns. Measured (calibration#graph-launch). What a
#: node-traced call takes beyond it is the profiler's. Lower, and launching is taken for overhead.
UNTRACED_GRAPH_LAUNCH_NS = 70_000
#: Idle before a migration of unified memory waits for its pages up to this, ns. Judged: the driver takes
#: 20 to 50 us for a batch of faults. Higher, and the host's own work before it touches them counts as
#: well.
FAULT_WAIT_NS = 100_000
#: Work that was launched less than this before a gap began was launched late, ns. Judged: work starts
#: within microseconds of its launch. Higher, and a queue that runs full counts as late.
LATE_LAUNCH_NS = 2_000
#: Work that starts this long after its launch was held back by the device, ns. Judged: loading its module
#: takes up to 3 ms. Lower, and first launches are waits of the device.
HELD_BACK_NS = 10_000_000
#: Idle after a synchronize call is its refill up to this, ns. Measured (calibration#host-gap). Higher, and
#: the host's own work after a wait counts as the wait's.
REFILL_NS = 100_000
#: Host code inside one gap from here on is a gap of its own, wherever steps begin, ns. Measured
#: (calibration#host-gap).
LONG_HOST_NS = 200_000
#: A GPU context holds work of the capture when this share of it begins there. Judged: clocks may differ a
#: little. Lower, and another program's context passes for its own.
OWN_CONTEXT_RATIO = 0.01
#: A device with less than this share of the GPU time of the busiest one is only touched (a memset, a
#: handle): its waits say nothing about the program. Judged. Higher, and a small second device is left out.
TOUCHED_RATIO = 0.01
#: A device that computes for less than this share of the busiest one's time has no part of its own in the
#: work (cleared buffers, a peer's copy). Judged. Higher, and an uneven pipeline loses a stage.
TAKES_PART_RATIO = 0.05
#: Counts without steps are rates per 100 kernels from this many kernels on. Judged
#: (calibration#per-100-kernels).
RATE_KERNELS = 20

# --- calls and copies -----------------------------------------------------------------------------

#: CPU samples inside the calls that locate them. Judged: fewer locate them less well than ranges do.
LOCATING_SAMPLES = 20
#: Copies of at most this many bytes cost a call and its latency rather than their transfer. Computed: at 25
#: GB/s they take 3 us. Higher, and packing is advised for inputs that fill the link.
SMALL_COPY_BYTES = 64 << 10
#: This many in a row are inputs that could be packed into one. Judged. Lower, and every model's few inputs
#: are; higher, and a dozen of separate inputs are not.
COPIES_IN_A_ROW = 8
#: What is copied is data from this many bytes on; less is a token or a flag. Judged
#: (calibration#exchange).
EXCHANGED_BYTES = 4096
#: An upload is computed from a download if it is at most this many times as large. Judged.
COMPUTED_FROM_FACTOR = 4
#: An asynchronous copy that lasts this long, and until its copy has run, was made to wait, ns. Judged: a
#: call takes 5 us, and staging a page of pageable memory some tens. Lower, and short copies on an idle
#: stream are.
HELD_CALL_NS = 100_000

# --- loops that run at a tick ---------------------------------------------------------------------

#: A loop runs at a tick if it sleeps before this share of its steps. Measured (calibration#hst104).
TICKS_RATIO = 0.8
#: And these begin evenly: tenth and last tenth of the times between them are this far apart at most, as a
#: share of the median. Measured (calibration#hst104). Higher, and waits for requests are ticks.
EVEN_TICKS_RATIO = 0.1
