"""Numbers that decide what a short kernel, a tiny copy, a read-back, a busy sample or a stop is.

As in :mod:`advisor.metrics.limits`: a limit, its unit, where it comes from and what goes wrong if it
moves. They shape facts; what is concluded from facts are thresholds of rules.
"""

from __future__ import annotations

# --- kernels and gaps -----------------------------------------------------------------------------

#: Kernels below this are short, ns: a host that launches one by one hardly keeps up with them. Judged. It
#: moves `kernel.short_ratio`, which rules compare with thresholds of their own.
SHORT_KERNEL_NS = 10_000
#: A host that launches kernel by kernel leaves gaps up to this, ns. Judged: longer ones are other work of
#: it.
SHORT_GAP_NS = 100_000
#: A persistent kernel launches one block per SM; from this length on it fills the device, ns. Judged.
#: Lower, and small grids look full.
LONG_KERNEL_NS = 50_000
#: If its blocks are at least this share of the SMs. Judged: a library may leave some to others.
FILLING_BLOCKS_RATIO = 0.9
#: Share of the peak DRAM bandwidth that kernels reach at best. Measured (calibration#dram). Higher, and
#: kernels that are at their limit look improvable.
ACHIEVABLE_RATIO = 0.92
#: From here on a kernel counts as limited by DRAM: 80 % of what is achievable. Documented (community
#: triage scripts).
DRAM_BOUND_RATIO = 0.8 * ACHIEVABLE_RATIO
#: Work of processes that overlaps for at most this share of the busy time takes turns. Measured
#: (calibration#utl110).
IN_TURNS_RATIO = 0.05
#: Tails that lose less than this share of the window are in no finding: Computed: `min_lost` of KRN103 is
#: the least.
LOST_TAIL_RATIO = 0.002
#: Share of the step from which on the waiting of a stage for others stands beside that for its own host.
#: Judged. Lower, and what is left of the ends of spans does.
STAGED_RATIO = 0.01
#: With this many collective calls two slow ones do not move the median. Judged.
COLLECTIVE_CALLS = 5

#: As many calls that lock memory of the host are no start-up. Measured (calibration#sums). Lower, and
#: loading a model through locked buffers is a loop.
PINNED_IN_LOOP_CALLS = 1_000
#: Calls that issue no work are named from this share of their time on. Judged. Lower, and a sentence names
#: calls that cost nothing.
NAMED_CALL_RATIO = 0.1
#: Work besides the usual is named by the operations that hold this share of it each. Judged.
BESIDES_NAMED_RATIO = 0.15

# --- copies ---------------------------------------------------------------------------------------

#: For smaller copies latency dominates, pinned or not, bytes. Judged. Lower, and pageable flags are
#: blamed.
LARGE_COPY_BYTES = 64 << 10
#: Copies below this carry a flag or a token, bytes. Judged: a page.
TINY_COPY_BYTES = 4 << 10
#: Copies from this size on measure the link; smaller ones its latency, bytes. Judged: a mebibyte.
LINK_COPY_BYTES = 1 << 20
#: The rate of a link that is not known, bytes/s: PCIe 3.0 x16. Judged: data-centre GPUs of recent years
#: have no less.
LEAST_LINK_BYTES_PER_S = 12e9
#: A read-back copies at most this many bytes to the host. Judged: a value, a flag, the tokens of a batch.
READBACK_BYTES = 4096
#: And a wait follows within this many calls of the thread. Judged. Higher, and an asynchronous copy of a
#: loop that waits later is one.
READBACK_WAIT_CALLS = 3
#: Calls of allocation that last longer than this stall, ns. Judged. Lower, and a caching allocator's usual
#: calls stall.
STALL_NS = 1_000_000

# --- samples --------------------------------------------------------------------------------------

#: If at least this share of the graph launches left no rows, the capture lacks the work of the device: the
#: busy time of its rows is too short by about that share. Judged.
HIDDEN_GRAPHS_RATIO = 0.1
#: Growth of memory is at least a share of this part of the device's. Judged: a capture that begins amid
#: the process misses what was allocated before.
LEAST_MEMORY_RATIO = 0.01
#: A program uses the device if it is active for this share of the time. Judged.
USED_RATIO = 0.01
#: Or if this share of its memory is in use. Judged: a context alone takes less.
HELD_MEMORY_RATIO = 0.02
#: Samples of a log, at least, of which means are taken. Judged.
LOG_SAMPLES = 10
#: Least activity of a sample that counts as busy. Judged: half.
BUSY_SAMPLE_RATIO = 0.5
#: Power from this share of its limit on counts as at the limit. Judged: samplers average over a second.
#: Lower, and a GPU that runs just below its limit is throttled.
AT_LIMIT_RATIO = 0.97
#: Below this share of the highest clock a sample needs a reason. Judged, as `max_clock` of UTL108.
LOW_CLOCK_RATIO = 0.85
#: From this share of the highest clock on nothing holds it down. Judged: clocks go in steps of about 1 %.
FULL_CLOCK_RATIO = 0.98
#: From this performance state on a busy GPU is in a low one. Documented (NVML): P0 is the fastest of 15;
#: P1 and P2 are those in which some boards compute.
LOW_STATE = 3
#: Fewest busy samples in a quarter of the window for a trend of the clock. Judged.
QUARTER_SAMPLES = 3
#: A sample counts as communication if collectives run for at least this share of it. Judged: half.
COMMUNICATING_RATIO = 0.5
#: Threads that an SM runs together: a block of fewer leaves lanes without work. Documented (NVIDIA's
#: programming guide).
WARP = 32
#: Transfers between two processes take as long as this quantile of the calls; what is above it is waiting.
#: Judged: a stage of a pipeline sends as often as it receives, and waits in one of the two.
SHORT_TRANSFERS = 0.25

# --- what tracing costs, and start-up -------------------------------------------------------------

#: Least cost of tracing one eager call, ns. Measured (calibration#traced-calls): 1.6 to 16 us over the
#: labelled pairs.
TRACED_CALL_NS = 1_600
#: Start-up of a step in either half of the window is the same again if one takes this share of the other.
#: Judged: half.
SAME_STARTUP_RATIO = 0.5
#: A part with less than this share of the capture is not named. Judged.
NAMED_REST_RATIO = 0.005

# --- where calls come from ------------------------------------------------------------------------

#: A place is named as the origin of calls if it holds this share of their time. Judged: half.
SITE_RATIO = 0.5
#: The cost of one callback of the tracer: this quantile of the times between neighbouring begins and ends.
#: Judged: between the nearest ones Python does almost nothing else.
CALLBACK_QUANTILE = 0.1
#: With fewer neighbours there is no estimate. Judged.
CALLBACKS = 100

# --- stops of a thread ----------------------------------------------------------------------------

#: A quota of the CPU is given anew each period, ns. Documented (Linux: cpu.max, 100 ms by default).
QUOTA_PERIOD_NS = 100_000_000
#: To this exactness, ns. Judged.
QUOTA_EXACT_NS = 2_000_000
#: Stops of a thread from this length on, ns. Judged.
STOP_NS = 1_000_000
#: This many at least. Judged: fewer may be chance.
STOPS = 4
#: So many of them show a rhythm. Computed: three end together by chance in one of 600 captures.
QUOTA_STOPS = 3
#: At least this share of them is in rhythm. Judged. Lower, and a thread that sleeps now and then has a
#: quota (calibration#switches: no public capture lacks a CPU).
RHYTHM_RATIO = 0.75
#: Or begins amid launches. Judged.
AMID_LAUNCHES_RATIO = 0.25
#: A thread sleeps where this share of its long stops lies between calls of two names. Judged: half.
ONE_PLACE_RATIO = 0.5
#: And this many times their share of all calls. Judged: stops by chance are spread as the calls are.
OVER_USUAL = 2.0

# --- printed tables, which have sums only ---------------------------------------------------------

#: A copy of a read-back takes less, ns; used if sizes were not printed. Judged: one of at most 4 KiB does.
READBACK_COPY_NS = 5_000
#: The host's cost of an eager launch, ns. Documented (nsys-profiling skill).
EAGER_LAUNCH_NS = 5_000
#: The longest usual call of an eager launch, ns: beyond it the queue of the GPU is full. Documented
#: (nsys-profiling skill: 5 us; traced eager launches take up to twice that).
LAUNCH_MOST_NS = 10_000
#: A call of this length waits for the device, ns. Judged.
BLOCKING_CALL_NS = 20_000
#: If that is this many times the length of its copy. Judged.
BLOCKING_COPY_FACTOR = 5
#: Uploads of this length on average load weights, ns. Judged: inputs of a step are smaller (25 MB at 25
#: GB/s).
LOADING_UPLOAD_NS = 1_000_000
#: The longest call of a name is start-up from this length on, ns. Judged: creation of a context.
FIRST_CALL_NS = 10_000_000
#: Of a launch from this length on, ns. Measured (calibration#cold-launches).
FIRST_LAUNCH_NS = 1_000_000
#: One call of this length is work that is done once, ns: context, first use of a library, compilation.
#: Judged.
ONCE_NS = 100_000_000
#: An operator that takes longer itself computes on the host, or waits, ns. Judged.
OPERATOR_MOST_NS = 200_000
#: Waits between passes are alike if the tenth and the ninetieth of a hundred are less than this apart, as
#: a share of the median. Judged, beyond the spread of host code. Higher, and requests in time with a clock
#: pass for a time-out.
ALIKE_WAITS_RATIO = 0.1
#: A fault lies in steps of one name (a batch size) if they hold this share of it, and are at most half of
#: the steps. Judged: nearly all. Lower, and a size is blamed for what others have as well.
ALL_IN_STEPS_RATIO = 0.9
#: Of which there are so many. Judged: one step is an outlier.
NAMED_STEPS = 2
#: Operators are slow below this part of what healthy kernels of their kind reach at that size. Judged: half.
#: Higher, and libraries that differ as usual pass for slow ones.
HEALTHY_PART = 0.5
