"""Limits of kernels: what a slow call, a layer, an expert, a pass of decode or a replaceable kernel is."""

from __future__ import annotations

# --- calls that are alike -------------------------------------------------------------------------

#: A call is slow from this many times the median of comparable calls on. Documented (nsys-profiling skill:
#: p99 / p50). Lower, and the usual spread of a kernel is a tail.
SLOW_CALL_FACTOR = 1.5
#: Of fewer comparable calls a percentile says nothing. Documented (nsys-ai: 20 calls or more).
TAIL_CALLS = 20
#: With fewer calls the shortest one proves little about a place in the step. Judged.
PLACE_CALLS = 5
#: Places whose shortest calls differ by more than this, the next longer one over a shorter, do other work.
#: Judged. Higher, and products of two depths are one group with a tail.
OTHER_PLACE_FACTOR = 1.2
#: Slow calls that come again and again as often, at about one length and beside nothing else, are another
#: product of the same kernel: in this share of the steps, or of the distances between them. Judged.
REGULAR_RATIO = 0.8
#: Of which there are this many or more. Judged: of fewer none is usual.
REGULAR_TIMES = 5
#: If they are this share of the calls. Judged. Lower, and a stall in every step is a product.
REGULAR_CALLS_RATIO = 0.2
#: One length: the longest of them over the shortest. Judged.
ONE_LENGTH_FACTOR = 1.25

# --- pace over the capture, and two recordings of one program -------------------------------------

#: A kernel changes like the rest where it changes by at least this part of the mean change. Judged: half.
#: Lower, and kernels that only the clock spares count as slowed down.
LIKE_THE_REST_RATIO = 0.5
#: Drift needs this many steps. Judged: each third then holds four.
DRIFT_STEPS = 12
#: One in so many steps, at the end of the window where they are shorter, shows what they took before they
#: changed. Judged: a third of the steps of an even change is a sixth of it off.
FASTEST_PART = 20
#: At least this many. Judged: one may be short by chance.
FASTEST_STEPS = 3
#: Similar calls are compared in this many runs of equal length. Judged.
DRIFT_RUNS = 8
#: Of at least this many calls each. Judged: the median of fewer is moved by one.
DRIFT_RUN_CALLS = 5
#: Runs that drift keep their order in rank, as correlation. Computed: two levels in a row of eight reach
#: 0.87. Lower, and noise drifts; higher, and a single change of the clock is none.
DRIFT_ORDER = 0.8
#: Two steps are of one kind if they have at least this share of their operations in common. Judged: half.
ALIKE_RATIO = 0.5
#: Recordings that have less in common are not of one program. Measured (calibration#together): those of one
#: share 97 % and more, of others up to 75 % of the time and 70 % of the operations.
SAME_PROGRAM_RATIO = 0.75
#: With fewer kernels of one launch shape they are of other sizes. Measured (calibration#together): of one
#: program 86 % and more.
SAME_SHAPES_RATIO = 0.25
#: Kernels of two stretches are alike if their calls differ in number by at most this share. Judged.
#: Higher, and what a larger batch adds passes for a slower device.
LIKE_CALLS_RATIO = 0.1

# --- layers ---------------------------------------------------------------------------------------

#: At least this many repetitions are layers. Judged: two may be chance.
LAYERS = 3
#: If they hold this share of the kernel time. Judged: most of it.
LAYERS_RATIO = 0.5
#: Layers by order: this share of the steps agrees on the number of layers, and this share of the layers
#: ends in a feed-forward network. Judged. Lower, and parts are labels that do not fit.
LAYERS_AGREE_RATIO = 0.75

# --- experts and adapters -------------------------------------------------------------------------

#: Activations, each behind products of its own, from which a layer runs its experts one by one. Measured
#: (calibration#moe103): the feed-forward network of a dense layer has one.
EXPERT_ACTIVATIONS = 3
#: Products behind a top-k, where experts have no activation. Judged: a dense layer has three behind its
#: norm.
EXPERT_PRODUCTS = 6
#: A top-k at most this many kernels ahead begins the layer. Judged.
GATE_DISTANCE = 8
#: Loops that come less often a step are no layers but, for example, the heads of a draft. Judged.
EXPERT_LOOPS = 4
#: Larger copies to the host are data and no choice of experts. Judged, as for small copies.
READBACK_BYTES = 64 << 10
#: At least this many layers of equal size must be seen to call some even. Judged.
EVEN_LAYERS = 8
#: This share of them counts as the most even. Judged: a quarter.
MOST_EVEN_RATIO = 0.25
#: Casts and dropout between a product and its adapter, and casts between the adapter and its addition: at
#: most this many kernels. Judged.
ADAPTER_DISTANCE = 2
#: A product of an adapter takes at most this many times as long as the product beside it. Judged: its rank
#: is far lower; both may be bound by their launch.
ADAPTER_FACTOR = 1.25
#: The least number of times that an adapter runs in a capture. Judged: a loop over layers.
ADAPTER_RUNS = 8

# --- kernels of a pass that others could replace --------------------------------------------------

#: At most this many other kernels between one that quantises and the product that reads it. Judged: they
#: pack scales, or sort tokens by expert.
QUANTISING_DISTANCE = 3
#: At most this many kernels between the products of attention. Judged: scaling, mask, softmax, casts.
SCORES_DISTANCE = 12
#: They take at least this share of the time of the products around them. Judged: the softmax of a router
#: before the products of its experts takes less.
SCORES_RATIO = 0.2
#: Kernels that widen weights: at most this many before a product. Judged.
WIDENING_DISTANCE = 8
#: Each of this many ns. Judged: kernels that widen activations are shorter.
WIDENING_NS = 3_000
#: And this share of the product. Computed: with n columns a product that is bound by arithmetic takes n /
#: 560 times as long as a kernel that reads and writes its input in 16 bits (700 Tflop/s, 2.5 TB/s).
WIDENING_RATIO = 0.25
#: Together this share of it. Judged. Lower, and casts of activations are widened weights.
WIDENED_RATIO = 0.75
#: This many gathers in a stretch without products read as many tables, or the cache of each layer. Judged.
GATHERS = 8
#: Shorter gathers move rows of an input, not a cache, ns. Judged.
CACHE_GATHER_NS = 3_000
#: Matrix kernels without sizes may hold this share of their time in a step whose weights are summed.
#: Judged: the sum is then this much too low at most.
UNSIZED_RATIO = 0.05

# --- collectives ----------------------------------------------------------------------------------

#: Below this many bytes the time of a collective is latency, not bandwidth. Judged: a mebibyte.
LATENCY_BYTES = 1 << 20
#: Where sizes are unknown, one this short moves a few MiB at most, ns. Judged.
SHORT_COLLECTIVE_NS = 100_000
#: Work of this length at most between two collectives of a row: what divides a gradient, or copies it out
#: of a bucket, ns. Judged. Higher, and the two of a layer that is split over GPUs are a row.
BETWEEN_ROW_NS = 10_000
#: If at least this share of it is exposed. Judged. Lower, and one that hides among kernels is in a row.
ALONE_RATIO = 0.9
#: With other kernels beside this share of the time of collectives, a program lets them overlap. Judged.
OVERLAPPING_RATIO = 0.02
#: Kernels of one name and launch shape inside one replay of a graph: from so many calls, and from this factor
#: between the longest and the shortest on, the times are not theirs. Choice: products of one shape and other
#: depths differ up to fourfold (4,096 against 14,336). Lower, and those count; higher, and times that lie are
#: believed.
UNEVEN_CALLS, UNEVEN_NODES = 4, 8.0
#: A batch is cut in two where so many of its exchanges lie between the attention of both halves. By
#: definition a quarter does: one of a half's two, and of one half. Judged: half of that. Lower, and layers
#: that the window cuts count; higher, and halves in decode steps alone are missed.
HALVES_RATIO = 0.125
#: A kernel is beside the work of another process with this share of its time. Judged: half.
BESIDE_RATIO = 0.5
#: So many calls of each kind, beside and apart, are compared. Judged.
COMPARED_CALLS = 5

# --- phases of serving ----------------------------------------------------------------------------

#: A step is of one phase if this share of its phase-specific kernel time says so. Judged. Lower, and a
#: mixed step is a prompt.
CLEAR_RATIO = 0.7
#: With this share of the lesser kind of attention a step is mixed. Judged.
MIXED_RATIO = 0.1
#: A decode step has at most this many tokens, one a sequence: more are a prompt, whatever kernel reads
#: them. Serving engines capture their decode graphs up to batches of 512 (vLLM). Documented (vLLM).
DECODE_SEQUENCES = 512
#: Without any sign of attention a pass with at most this many tokens is a decode step. Judged: prompts are
#: longer.
DECODE_TOKENS = 256
#: Blocks of an attention kernel for each token, from which it decodes. Computed: in decode every sequence
#: has a block for each head of keys and values; in prefill a block takes 64 or 128 tokens of a head, which
#: makes one or less for up to 64 heads.
DECODE_BLOCKS = 4.0
#: A benchmark generates this many tokens or more. Judged: a scheduler may let prompts in more often.
GENERATED_STEPS = 8
#: Slow steps are single pauses if at most this share of the steps, or one, is slow. Measured
#: (calibration#hst105).
PAUSED_STEPS_RATIO = 0.1
#: Of at least this many steps. Measured (calibration#hst105).
EVEN_STEPS = 6
#: A step is slow from this many times the median time on, and warm-up if the first ones are. Judged.
#: Lower, and a batch that grows by a request makes steps slow.
SLOW_STEP_FACTOR = 1.5
#: And if it is this many standard deviations above the mean of the others. Judged: the usual rule for
#: outliers.
SLOW_STEP_DEVIATIONS = 3
#: Slow steps among those that run the same kernels are told from noise by the median of the distances from
#: the median, which they hardly move: times 1.4826 it is the standard deviation of even noise, and a value
#: that lies 3.5 of these away is an outlier (Iglewicz and Hoaglin 1993; NIST/SEMATECH e-Handbook, 1.3.5.17).
DEVIATIONS_OF_MEDIAN, OUTLYING_DEVIATIONS = 1.4826, 3.5
#: Steps are no more even than this share of the median. Judged: without it steps of a very even capture that
#: differ by microseconds would be slow.
LEAST_SPREAD_RATIO = 0.01
#: So many steps with one number of tokens show what such a step takes. Judged: the median of three leaves
#: a slow one out. Higher, and rare sizes are not compared with each other.
LIKE_SIZED_STEPS = 3
#: A step with this many times the usual operations runs another pass as well. Judged.
MORE_WORK_FACTOR = 1.5
#: A step that lacks at most this share of the usual calls runs all that the others run. Judged: kernels
#: with several variants differ from step to step.
MISSING_WORK_RATIO = 0.05
#: What it runs besides is work of its own from this share of the usual step on. Judged.
BESIDES_RATIO = 0.5
#: A capture is of one phase from this share of the time of its steps on. Judged: a generation of a hundred
#: tokens spends less than a tenth of its time in the prompt.
ONE_PHASE_RATIO = 0.9
#: Number of independent kinds of evidence at which a judgement of the work is as sure as its margin says.
#: Judged.
EVIDENCE_KINDS = 3
#: How sure one kind of evidence is, beside as many as that. Judged.
ONE_KIND_RATIO = 0.8
#: How much of its confidence a judgement loses to another that is as likely. Judged: half.
RIVAL_RATIO = 0.5

# --- load of a server, by its log -----------------------------------------------------------------

#: Lines that are compared have numbers of requests that differ by at most this share. Judged.
LIKE_LOAD_RATIO = 0.35
#: The least number of lines on each side of a comparison. Judged.
LOAD_LINES = 3
#: Replicas whose time per token differs by more than this, the slowest over the fastest, have no common
#: one. Judged.
LIKE_REPLICAS_FACTOR = 1.5
#: A server reads prompts for others if it reads at least the first share of the tokens a second of the one
#: that reads most, and gives less than the second of those of the one that gives most: it gives one token a
#: request. Choice.
PROMPT_SERVER_READS, PROMPT_SERVER_GIVES = 0.5, 0.05
#: A run that gives this share of the most tokens a second gives nearly the most. Judged. Higher, and noise
#: decides where more requests at once stop to help.
NEARLY_MOST_RATIO = 0.95
