"""Numbers that decide what a pause, an interruption, a warm-up, start-up or a wait is, gathered in one place.

They are judgements. Each says what it is a limit of, its unit, where it comes from and what goes wrong if
it moves. Origins are a section of ``knowledge/calibration.md``, a measurement, or a choice where neither is
there. Units are in the names: ``_NS``, ``_RATIO`` (a share, 0 to 1), ``_FACTOR`` (how many times as much);
others are counts.
"""

from __future__ import annotations

# --- the steady window -----------------------------------------------------------------------------

#: A pause of more than this share of the time ends the window, if hardly any GPU work stands on one side of
#: it. Choice: longer than any gap within the work, shorter than a cold iteration of a hundred. Lower, and a
#: long host gap cuts the work in two; higher, and warm-up before a pause stays in the window.
PAUSE_RATIO = 0.5
#: Hardly any: up to this share of the GPU work, by operations and by time. Choice. Higher, and a window loses
#: real work; lower, and a cold iteration stays in it.
BESIDE_PAUSE_RATIO = 0.01
#: A first step that keeps the GPU busy for this many times as long as any other step does other work. Choice:
#: a cold step is slow on the host, its kernels take as long as later. Lower, and a step whose kernels vary
#: is left out; higher, and the prompt of a benchmark counts among its tokens.
OTHER_WORK_FACTOR = 2.0
#: An interruption lasts this many median steps (calibration#hst108: tokens of one sequence follow each other
#: within some steps). Lower, and pauses of the loop itself leave the window; higher, and idle time between
#: two jobs is blamed on the host.
INTERRUPTION_STEPS = 20
#: A single one lasts this many (calibration#hst108): nothing that recurs looks like it.
LONE_INTERRUPTION_STEPS = 5
#: And this long at least, ns (calibration#hst108): requests come tenths of a second apart. Lower, and slow
#: steps of a fast loop are taken for interruptions.
INTERRUPTION_NS = 100_000_000
#: Interruptions come in at most this share of the steps (calibration#hst108); what comes more often is part
#: of the loop, and its idle time has to stay in the window.
INTERRUPTED_RATIO = 0.1
#: A shorter pause stands out if no other among this many steps is half as long (calibration#hst108): of fewer
#: steps nothing is usual.
LONE_PAUSE_STEPS = 6

# --- first steps that are warm-up --------------------------------------------------------------------

#: Steps whose numbers of operations differ by at most this do the same work. Choice. Lower, and a growing
#: context makes each step another; higher, and prompts count as slow decode steps.
SAME_SIZE_RATIO = 0.1
#: A step is warm-up if this share of it is cold. Choice: a stray module load takes less.
COLD_STEP_RATIO = 0.1
#: And takes this many times the median step. Choice. Lower, and steps of an uneven loop are left out; higher,
#: and a warm-up stays in the window, where it looks like a slow step.
SLOW_STEP_FACTOR = 1.3
#: So are first steps in which the device idles for this many times the median step: compilation on the host
#: makes no call that shows it. Choice, well beyond what a loop's own first step waits for.
COLD_IDLE_FACTOR = 3.0
#: While the clock of a device still rises, the same work keeps it busy for this many times as long as later.
#: Choice: from idle clocks to boost. Lower, and throttling is taken for a rising clock.
RISING_FACTOR = 1.5
#: Only first steps qualify, up to this share of all. Choice: higher, and a change of the work is left out.
RAMP_RATIO = 0.2

# --- start-up ----------------------------------------------------------------------------------------

#: Module loads and first launches from this length on, ns. Choice: shorter ones look up single functions.
#: Lower, and each new kernel of a warm program is start-up.
MODULE_LOAD_NS = 100_000
#: This many of them occur in a warm program, too. Choice: one more, and it counts as cold.
STRAY_LOADS = 2
#: A first launch is cold from this many times the median launch on. Measured (calibration#cold-launches): all
#: launches above 1 ms with the device idle are first ones, steady ones take 2 to 10 us.
COLD_LAUNCH_FACTOR = 10.0
#: Set-up of a library (handles, workspaces, graphs) are calls of this length, ns. Choice: that of a first
#: launch (calibration#cold-launches). Lower, and allocations of the work itself are start-up.
SETUP_CALL_NS = 1_000_000
#: Of which there are so few of a name. Choice: what comes more often belongs to the loop.
SETUP_CALLS = 3
#: An upload of weights moves this share of all uploaded bytes before the work. Choice: the most of them.
UPLOAD_RATIO = 0.5
#: And this many bytes. Choice: less than a small model, more than inputs. Lower, and a first batch is an
#: upload of weights.
UPLOAD_BYTES = 32 << 20
#: With fewer kernels after the upload than this, or than uploads, moving data is what the program does.
UPLOAD_KERNELS = 3
#: Initialisation after this share of the kernel time belongs to the work itself. Choice: half.
LATE_RATIO = 0.5
#: A range that is named start-up is believed up to this share: its name says what it is.
LATE_RANGE_RATIO = 0.9
#: The head of a capture is set aside up to where this share of it is cold. Choice: the most of it. Lower, and
#: steady work between two module loads is set aside with them.
COLD_HEAD_RATIO = 0.5

# --- trials of kernels (autotuning) --------------------------------------------------------------------

#: Trials are at most this many kernels apart. Choice: a benchmark clears caches and flushes between them.
TRIAL_DISTANCE = 16
#: Of this many kernels. Choice: fewer are a loop of the model.
TRIAL_KERNELS = 4
#: This many in all. Choice: three of each kernel. Lower, and layers that repeat a kernel are trials.
TRIALS = 12
#: And most of what runs there: this share. Choice.
TRIALS_RATIO = 0.5
#: From this many steps on, steps tell what comes back. Choice: of fewer none is usual.
TRIAL_STEPS = 6
#: What only trials run is in at most this share of the steps. Choice: about a third. Higher, and the kernels
#: of a rare kind of step are trials.
SELDOM_RATIO = 0.35
#: Module loads between them. Choice: a single one after host code may be that of a library.
TRIAL_LOADS = 2
#: A kernel that runs as often in a row through this share of the rest of the capture is a benchmark. Choice.
BENCHMARK_RATIO = 0.5

# --- waits between passes, in which perhaps no request came --------------------------------------------

#: There is a pattern from this many waits on (calibration#hst111). Lower, and few pauses are requests.
LEAST_WAITS = 6
#: In this share of the passes at least: fewer are interruptions (calibration#hst111).
FEW_WAITS_RATIO = 0.1
#: Which take this share of the time at least (calibration#hst111: the limit of host gaps).
WAITED_RATIO = 0.1
#: A wait is one in the operating system if such calls cover this share of it; waits come before prompts if
#: this share of them does (calibration#hst111: four fifths).
COVERED_RATIO = 0.8
#: Waits vary widely if they differ from the one before by this factor, as geometric mean. Computed
#: (calibration#hst111): requests that are evenly spread pass for host code in 0 to 5 % of the draws, with 1.5
#: in 5 to 33 %. Lower than 1.25, and host code whose times spread by a fifth passes for requests.
VARYING_FACTOR = 1.3
#: And if they do not come in two or three sizes: this many tenths of the range, or more, are in use. Choice.
WAIT_SIZES = 4
#: The tenths that hold this share of the range between the shortest and the longest count. Choice.
WAIT_RANGE_RATIO = 0.9
#: The shortest waits, which together hold this share of the time, are passes back to back. Choice.
SHORT_WAITS_RATIO = 0.03
#: Between tokens of running sequences no request has to come: such waits are shorter than this many steps
#: (calibration#hst104).
BETWEEN_TOKENS_STEPS = 3.0

# --- steps: how few operations, repetitions and layers make one ------------------------------------------

#: At least this many operations in a step. Choice: fewer are a loop of two kernels.
STEP_OPERATIONS = 8
#: Comparing steps needs this confidence, 0 to 1. Choice: a kernel sequence without confirmation (0.5) may be
#: a block that repeats within a step. Lower, and layers are compared as if they were steps.
BELIEVED = 0.6
#: The least number of repetitions that shows a loop. Choice: two may be chance.
REPEATS = 3
#: The parts between returns of a kernel differ in size by less than this. Choice. Higher, and layers of two
#: kinds are steps; lower, and steps with a rare extra kernel are not found.
SPREAD_RATIO = 0.05
#: Fewer even returns than this on both sides of an irregular one are no proof of layers. Choice.
LAYERS_AROUND = 8
#: Blocks of UNets and diffusion transformers launch some 10 to 30 kernels, whole ones hundreds. Choice.
DENOISER_OPERATIONS = 100
#: Uneven periods are a recurring group if this share of them returns after the group's length. Choice.
GROUP_RETURNS_RATIO = 0.9
#: Work before the first graph launch is one pass if it is at most this many times the usual one. Choice.
FIRST_PASS_FACTOR = 1.5

# --- steps: where one ends -------------------------------------------------------------------------------

#: A boundary moves to where the device regularly idles longer than this, ns. Choice: longer than the gap
#: between two kernels of a full queue.
BOUNDARY_PAUSE_NS = 5_000
#: And this many times longer than at the boundary itself. Choice. Lower, and boundaries move at random.
BOUNDARY_PAUSE_FACTOR = 2.0
#: A step before the first return holds this share of a period. Choice. Lower, and half a step counts as one.
FIRST_STEP_RATIO = 0.9
#: A step after the last boundary holds this share. Choice: its tail may be cut off by the capture.
LAST_STEP_RATIO = 0.75
#: A step shorter than this share of the usual one is dropped, unless it precedes the first. Choice: half.
FRAGMENT_RATIO = 0.5

# --- steps: passes that stand apart, and waits that end them -----------------------------------------------

#: Passes stand apart if the device idles for this long behind them, ns (calibration#hst111): the longest wait
#: inside a layer that reads a value back takes 0.1 ms.
APART_NS = 500_000
#: And for this many times as long as anywhere inside (calibration#hst111): host code between layers takes
#: less. Lower, and layers of a slow host are passes.
APART_FACTOR = 10.0
#: Behind this share of the passes: most of them.
APART_RATIO = 0.5
#: This many passes or more. Choice: of fewer no size is usual.
APART_PASSES = 6
#: This share of them is of one size. Choice.
APART_EQUAL_RATIO = 0.95
#: And they hold this share of the operations. Choice.
APART_WHOLE_RATIO = 0.9
#: A pass waits at most this often: for its inputs, for its parts, for its result. Choice.
WAITS_A_PASS = 8
#: With fewer repetitions than this short work may as well be layers. Choice.
WAIT_REPEATS = 8
#: One kernel or two between waits may be a loop inside a step. Choice.
WAIT_KERNELS = 3
#: At least this share of the periods runs the same operations. Choice.
WAIT_EQUAL_RATIO = 0.95
#: In this share of the GPU time. Choice.
WAIT_TIME_RATIO = 0.8
#: Each layer of a loop over experts reads back at least this many values. Choice: a router reads one.
READBACKS_A_LAYER = 3

# --- steps: ranges that delimit them -----------------------------------------------------------------------

#: Steps that hold less of the GPU time between them than this mark only a part of the pass. Choice. Higher,
#: and ranges around the model alone are no steps; lower, and the range of a sampler is one.
PART_OF_PASS_RATIO = 0.8
#: A range of unknown name may delimit steps if it repeats and holds this much of the GPU time. Choice.
UNNAMED_RANGE_RATIO = 0.67
#: Confidence of ranges that repeat like steps but are named differently. Choice: believed, and not certain.
UNKNOWN_NAME_CONFIDENCE = 0.8
#: Confidence of a function of unknown name, which may be a layer's: a marker of passes has to confirm it.
UNKNOWN_FUNCTION_CONFIDENCE = 0.5
#: Of two kinds of ranges, one inside the other, the outer is preferred if it holds this much more. Choice.
OUTER_RANGE_FACTOR = 1.0 / 0.9
#: A level repeats the same number of times in at least this share of the steps. Choice.
LEVEL_RATIO = 0.8
#: At least this share of the returns of a kernel are the same number of operations apart. Choice.
REGULAR_RETURNS_RATIO = 0.75
#: And the repetitions hold this much of the step. Choice: most of it are layers.
REPEATED_RATIO = 0.5
#: A layer has at least this many operations. Choice: a shorter repetition is a loop over one kernel or two.
LAYER_OPERATIONS = 4
#: Parts that hold layers are passes of a model, of which at most this many make a step. Choice: drafts and
#: their verification, two networks in turn; a longer stride is a loop that does something extra now and then.
PASSES_A_STEP = 8
#: Confidence of steps that may be parts of longer ones. Choice: below `BELIEVED`.
PARTS_CONFIDENCE = 0.5
#: Confidence of graph launches whose end is not recorded. Choice: below `BELIEVED`.
NO_WAIT_CONFIDENCE = 0.5

# --- steps: markers that confirm or refute what repeats ----------------------------------------------------

#: A segmentation is rejected if fewer of its parts than this share hold the marker. Choice: half.
MARKER_MISSED_RATIO = 0.5
#: It is confirmed if this share of its parts does. Choice. Lower, and layers of which some hold a marker are
#: steps; higher, and steps that skip the sampler are none.
MARKER_HELD_RATIO = 0.8
#: Unmarked steps must hold this share of the GPU time. Choice.
UNMARKED_RATIO = 0.67
#: A marker that confirms unmarked steps adds this to their confidence. Choice: 0.5 is then believed.
CONFIRMED_BY = 0.3
#: A repeated part with one inner range in this share of its occurrences is a layer or a micro-batch. Choice.
INNER_RANGE_RATIO = 0.8
#: Confidence of layers within parts that each have one input or one result. Choice: more than that of
#: repetition alone.
FED_CONFIDENCE = 0.7
#: A compiled program holds at least this share of the GPU time of the capture. Choice.
WHOLE_PROGRAM_RATIO = 0.95
#: The expected number of ends of parts among lost kernels may be at most this. Choice. Higher, and two steps
#: whose boundary was lost are one.
LOST_ENDS = 0.02
#: With more of them confidence is this at most: not believed.
LOST_ENDS_CONFIDENCE = 0.5
#: Work between two updates that launches this many times the usual kernels holds more than a step. Choice.
EVALUATION_FACTOR = 4
#: With this many kernels the work between updates is a step, not the backward pass of one layer. Choice.
UPDATE_KERNELS = 24
#: And one uninterrupted stretch holds this share of the updates. Choice.
UPDATES_RATIO = 0.25
