"""Limits of the window: what a pause, an interruption, a warm-up, start-up or a wait for requests is."""

from __future__ import annotations

# --- the steady window ----------------------------------------------------------------------------

#: A pause of more than this share of the time ends the window, if hardly any GPU work stands on one side
#: of it. Judged: longer than any gap within the work, shorter than a cold iteration of a hundred. Lower,
#: and a long host gap cuts the work in two; higher, and warm-up before a pause stays in the window.
PAUSE_RATIO = 0.5
#: Hardly any: up to this share of the GPU work, by operations and by time. Judged. Higher, and a window
#: loses real work; lower, and a cold iteration stays in it.
BESIDE_PAUSE_RATIO = 0.01
#: A first step that keeps the GPU busy for this many times as long as any other step does other work.
#: Judged: a cold step is slow on the host, its kernels take as long as later. Lower, and a step whose
#: kernels vary is left out; higher, and the prompt of a benchmark counts among its tokens.
OTHER_WORK_FACTOR = 2.0
#: An interruption lasts this many median steps. Measured (calibration#hst108: tokens of one sequence
#: follow each other within some steps). Lower, and pauses of the loop itself leave the window; higher, and
#: idle time between two jobs is blamed on the host.
INTERRUPTION_STEPS = 20
#: A single one lasts this many. Measured (calibration#hst108): nothing that recurs looks like it.
LONE_INTERRUPTION_STEPS = 5
#: And this long at least, ns. Measured (calibration#hst108): requests come tenths of a second apart.
#: Lower, and slow steps of a fast loop are taken for interruptions.
INTERRUPTION_NS = 100_000_000
#: Interruptions come in at most this share of the steps. Measured (calibration#hst108); what comes more
#: often is part of the loop, and its idle time has to stay in the window.
INTERRUPTED_RATIO = 0.1
#: A shorter pause stands out if no other among this many steps is half as long. Measured
#: (calibration#hst108): of fewer steps nothing is usual.
LONE_PAUSE_STEPS = 6
#: A stretch lies inside a range if that is open but for one part in so many at either end. Judged: the
#: range begins some time after the wait of the step before has returned. Higher, and stretches inside
#: short steps pass for idle time between steps.
EDGE_OF_STRETCH = 10

# --- first steps that are warm-up -----------------------------------------------------------------

#: Steps whose numbers of operations differ by at most this do the same work. Judged. Lower, and a growing
#: context makes each step another; higher, and prompts count as slow decode steps.
SAME_SIZE_RATIO = 0.1
#: A step is warm-up if this share of it is cold. Judged: a stray module load takes less.
COLD_STEP_RATIO = 0.1
#: And takes this many times the median step. Judged. Lower, and steps of an uneven loop are left out;
#: higher, and a warm-up stays in the window, where it looks like a slow step.
SLOW_STEP_FACTOR = 1.3
#: So are first steps in which the device idles for this many times the median step: compilation on the
#: host makes no call that shows it. Judged, well beyond what a loop's own first step waits for.
COLD_IDLE_FACTOR = 3.0
#: While the clock of a device still rises, the same work keeps it busy for this many times as long as
#: later. Judged: from idle clocks to boost. Lower, and throttling is taken for a rising clock.
RISING_FACTOR = 1.5
#: Only first steps qualify, up to this share of all. Judged: higher, and a change of the work is left out.
RAMP_RATIO = 0.2

# --- start-up -------------------------------------------------------------------------------------

#: Module loads and first launches from this length on, ns. Judged: shorter ones look up single functions.
#: Lower, and each new kernel of a warm program is start-up.
MODULE_LOAD_NS = 100_000
#: This many of them occur in a warm program, too. Judged: one more, and it counts as cold.
STRAY_LOADS = 2
#: A first launch is cold from this many times the median launch on. Measured (calibration#cold-launches):
#: all launches above 1 ms with the device idle are first ones, steady ones take 2 to 10 us.
COLD_LAUNCH_FACTOR = 10.0
#: A launch is cold if the device is busy for at most this share of it: else it waits for room. Judged:
#: half.
COLD_BUSY_RATIO = 0.5
#: Set-up of a library (handles, workspaces, graphs) are calls of this length, ns. Judged: that of a first
#: launch (calibration#cold-launches). Lower, and allocations of the work itself are start-up.
SETUP_CALL_NS = 1_000_000
#: Of which there are so few of a name. Judged: what comes more often belongs to the loop.
SETUP_CALLS = 3
#: An upload of weights moves this share of all uploaded bytes before the work. Judged: the most of them.
UPLOAD_RATIO = 0.5
#: And this many bytes. Judged: less than a small model, more than inputs. Lower, and a first batch is an
#: upload of weights.
UPLOAD_BYTES = 32 << 20
#: With fewer kernels after the upload than this, or than uploads, moving data is what the program does.
#: Judged.
UPLOAD_KERNELS = 3
#: Initialisation after this share of the kernel time belongs to the work itself. Judged: half.
LATE_RATIO = 0.5
#: An upload of weights is over after this share of the kernel time. Judged: what is copied later is input.
UPLOAD_UNTIL_RATIO = 0.01
#: And is from memory that is not pinned if this share of its bytes is. Judged: half.
UPLOAD_PAGEABLE_RATIO = 0.5
#: A range that is named start-up is believed up to this share: its name says what it is. Judged.
LATE_RANGE_RATIO = 0.9
#: The head of a capture is set aside up to where this share of it is cold. Judged: the most of it. Lower,
#: and steady work between two module loads is set aside with them.
COLD_HEAD_RATIO = 0.5

# --- trials of kernels (autotuning) ---------------------------------------------------------------

#: Trials are at most this many kernels apart. Judged: a benchmark clears caches and flushes between them.
TRIAL_DISTANCE = 16
#: Of this many kernels. Judged: fewer are a loop of the model.
TRIAL_KERNELS = 4
#: This many in all. Judged: three of each kernel. Lower, and layers that repeat a kernel are trials.
TRIALS = 12
#: And most of what runs there: this share. Judged.
TRIALS_RATIO = 0.5
#: Kernels that few steps run are trials if they are this share of all kernels from the first to the last
#: of them. Judged: an encoder runs attention and norms between its products.
ONLY_TRIALS_RATIO = 0.9
#: From this many steps on, steps tell what comes back. Judged: of fewer none is usual.
TRIAL_STEPS = 6
#: What only trials run is in at most this share of the steps. Judged: about a third. Higher, and the
#: kernels of a rare kind of step are trials.
SELDOM_RATIO = 0.35
#: Module loads between them. Judged: a single one after host code may be that of a library.
TRIAL_LOADS = 2
#: A kernel that runs as often in a row through this share of the rest of the capture is a benchmark.
#: Judged.
BENCHMARK_RATIO = 0.5

# --- waits between passes, in which perhaps no request came ---------------------------------------

#: There is a pattern from this many waits on. Measured (calibration#hst111). Lower, and few pauses are
#: requests.
LEAST_WAITS = 6
#: In this share of the passes at least: fewer are interruptions. Measured (calibration#hst111).
FEW_WAITS_RATIO = 0.1
#: Which take this share of the time at least. Measured (calibration#hst111: the limit of host gaps).
WAITED_RATIO = 0.1
#: A wait is one in the operating system if such calls cover this share of it; waits come before prompts if
#: this share of them does. Measured (calibration#hst111: four fifths).
COVERED_RATIO = 0.8
#: Waits vary widely if they differ from the one before by this factor, as geometric mean. Computed
#: (calibration#hst111): requests that are evenly spread pass for host code in 0 to 5 % of the draws, with
#: 1.5 in 5 to 33 %. Lower than 1.25, and host code whose times spread by a fifth passes for requests.
VARYING_FACTOR = 1.3
#: And if they do not come in two or three sizes: this many tenths of the range, or more, are in use.
#: Judged.
WAIT_SIZES = 4
#: The tenths that hold this share of the range between the shortest and the longest count. Judged.
WAIT_RANGE_RATIO = 0.9
#: The shortest waits, which together hold this share of the time, are passes back to back. Judged.
SHORT_WAITS_RATIO = 0.03
#: Input comes at a fixed rate if this share of the time from one wait's end to the next holds all but the
#: tenths at both ends. Measured (calibration#hst112). Higher, and even work passes for input.
EVEN_PERIOD_RATIO = 0.02
#: And if what the thread does in between varies by this many times as much. Measured (calibration#hst112).
VARYING_WORK = 4.0
#: Between tokens of running sequences no request has to come: such waits are shorter than this many steps.
#: Measured (calibration#hst104).
BETWEEN_TOKENS_STEPS = 3.0

# --- contexts and runs ----------------------------------------------------------------------------

#: The first call before any GPU work creates the context when it takes this long, ns. Judged. Lower, and a
#: slow first call is start-up.
CONTEXT_NS = 10_000_000
#: Another call of that name does so again when it takes this share of the time. Judged: half.
CONTEXT_AGAIN_RATIO = 0.5
#: This many operations at the beginning of a run show whether it is the same program again. Judged.
OPENING_OPERATIONS = 4
