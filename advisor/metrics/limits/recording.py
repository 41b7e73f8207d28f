"""Limits of a recording: what is lost, what cannot be, and what samples can tell."""

from __future__ import annotations

# --- lost rows ------------------------------------------------------------------------------------

#: A jump of correlation ids means loss when it exceeds this many ids. Judged: far more than calls that are
#: filtered out use.
JUMP_IDS = 10_000
#: Ids have 32 bits (Documented by CUPTI of NVIDIA: `correlationId` is a uint32_t). One beyond is broken,
#: no sign of loss.
MOST_ID = 2**32 - 1
#: And what this many ids for each recorded call could have used up. Judged: CUPTI spends a few on each;
#: calls that are filtered out use ids, too. Lower, and a filtered capture is damaged.
IDS_PER_CALL = 20
#: A step range shorter than this share of the others may well do nothing. Judged: half.
SHORT_RANGE_RATIO = 0.5
#: Step ranges without a call are lost events if they make this share of all. Judged. Lower, and a range
#: that only skips its work is damage.
EMPTY_RANGES_RATIO = 0.25
#: A graph with fewer nodes proves little. Judged.
GRAPH_NODES = 8
#: Nodes that never left a row are lost from this share on. Judged: below it they may be host functions or
#: empty nodes, which leave none.
NEVER_SEEN_RATIO = 0.4
#: If recorded work takes more than this share of the wait of a stream's first operation, the stream waited
#: for that work. Judged.
HELD_UP_RATIO = 0.01
#: Shorter waits are the latency of a launch, on any driver, ns. Judged.
FIRST_WAIT_NS = 5_000_000
#: PyTorch numbers operators one by one, ROCm its calls: this share of the numbers follows the one ahead.
#: Measured: 92 % and more of whole traces. Higher, and whole traces are damaged.
FOLLOWING_RATIO = 0.8
#: CUPTI numbers every call, recorded or not: a whole capture takes up to this many numbers a recorded call
#: in the mean. Measured: in 60 whole captures (nsys 2022 to 2026, PyTorch 1.8 to 2.11).
WHOLE_IDS_PER_CALL = 15
#: Calls are missing from this mean on. Judged: twice what whole captures take.
MISSING_MEAN = 30
#: And from this median on. Measured: 12 at most in the whole captures.
MISSING_MEDIAN = 20
#: A product of empty matrices launches nothing: missing launches count only if calls are this far apart in
#: the mean. Judged, above what whole captures take.
WIDE_MEAN = 18
#: Fewer numbers of operators prove little. Judged.
NUMBERED_OPERATORS = 50
#: Fewer numbers of calls prove little. Judged.
NUMBERED_CALLS = 100
#: The widest gaps are pauses of the recording: those beyond this percentile. Judged.
PAUSES_PERCENTILE = 98
#: Fewer products prove little. Judged.
PRODUCTS = 20

# --- rows left out at random: kernels of alike steps, or of replays of one graph, vary in number --

#: Steps are of about one size if their numbers of kernels differ from the median by at most this. Judged.
ALIKE_SIZE_RATIO = 0.2
#: This share of them is. Judged: most.
ALIKE_STEPS_RATIO = 0.6
#: Fewer of them say little. Judged.
ALIKE_STEPS = 4
#: Kernels that come so often in each are counted. Judged: fewer vary by chance.
COUNTED_CALLS = 8
#: Fewer such kernels say little. Judged.
COUNTED_KERNELS = 5
#: Nearly every kernel varies: by time this share. Measured: of 40 whole captures kernels with at most 75 %
#: of the rows vary.
VARYING_RATIO = 0.9
#: Each varies by less than a Poisson count (1) does: at most this. Measured: in whole captures those that
#: vary do by 1.4 and more.
MOST_SPREAD = 0.9
#: Each for itself: the steps vary at most this many times as much as their kernels together. Judged: what
#: a solver repeats until it converges varies together.
TOGETHER_FACTOR = 2.5
#: Less than this share is not told from noise. Judged.
LEAST_LOSS_RATIO = 0.03

# --- rows that cannot be --------------------------------------------------------------------------

#: By how much the clocks of host and device may differ, ns. Measured: no operation of a real capture begins
#: before its call.
SKEW_NS = 5_000
#: The same for work that ends after a call that waited for it, ns. Measured: none does.
LATE_END_NS = 100_000
#: Stamps are rounded: consecutive work on a stream or thread may overlap by this, ns. Judged.
ROUNDING_NS = 1_000
#: A clock with fewer ns per tick shows how long the shortest kernels and calls last. Judged.
FINE_NS = 100
#: By so many of the first stamps, and the rest. Judged.
FIRST_STAMPS = 1_000
#: Samplers round and average; a share of a peak beyond this is invalid. Judged.
FULL_RATIO = 1.05

# --- samples --------------------------------------------------------------------------------------

#: Samples whose misfits are taken as related. Judged. Lower, and errors of activities come out too small.
RELATED_SAMPLES = 20
#: A group is resolved when the standard error of its activity is at most this. Judged: a group at the
#: limit is told from one at half of it ten times over. Higher, and findings rest on noise; lower, and
#: short captures resolve nothing.
RESOLVED_ERROR = 0.05
#: A level whose error is at most this still shows on which side of a limit a kernel probably is. Judged.
LIKELY_ERROR = 0.15
#: Groups with less than this share of the kernel time (five times it for lighter families) go into
#: ``rest``. Judged.
GROUP_RATIO = 0.02
#: At most this many groups. Judged: more are not resolved.
GROUPS = 12
#: Above this correlation (condition number) the samples cannot tell the groups apart. Judged.
CONDITION = 1e4
#: Fewer samples resolve nothing. Judged.
SAMPLES = 30
#: By how much the stamps of samples and kernels differ, ns. Measured: the best fit is 1 us late at 10 and at
#: 100 kHz.
STAMP_NS = 1_000
#: How much of a kernel's memory traffic may fall outside of it, as time, ns. Judged: it ends up to 1 us
#: early or late.
EDGE_NS = 500
#: A lag of samples against kernels is searched up to this, ns. Judged.
LAG_NS = 10_000_000
#: For that search samples of a shorter period are averaged over this time, ns. Judged. Longer, and samples
#: tell kernels apart less well; shorter, and the search takes long.
LAG_SAMPLE_NS = 50_000
#: Activity follows the kernels from this correlation on. Measured: 0.87 to 1 in 17 captures of an H200, less
#: than 0.5 in three whose kernels are too short or too even for it.
FOLLOWING_CORRELATION = 0.7
#: Samples are off if the correlation is higher by this than with their stamps as they are. Judged: in
#: those captures it is highest there.
LAG_MARGIN = 0.02
#: And if with their stamps as they are this many times as much of the variance is left unexplained.
#: Judged: the same in those captures; off by one sample, 2.7 times as much and more.
LAG_FACTOR = 2
#: Single kernels get a column from this share of the time on. Judged.
SINGLE_RATIO = 0.004
#: At most this many, and one per ten samples. Judged: more are not resolved.
SINGLES = 40
#: Where no source gives busy time itself, a sample counts as busy from this activity on. Judged.
ACTIVE_RATIO = 0.01
#: Activity that varies by less than this (standard deviation, 0 to 1) tells nothing. Judged.
FLAT_DEVIATION = 1e-3
#: Nor does work whose time in the samples varies by less than this. Judged: the device is always busy.
BUSY_DEVIATION = 0.05
#: Bursts of a service are looked for in bins of this length, ns. Judged: as long as many a request.
#: Shorter, and single steps are bursts.
BURST_BIN_NS = 100_000_000
#: Percentiles of fewer bins than this say nothing. Judged.
PERCENTILE_BINS = 10
