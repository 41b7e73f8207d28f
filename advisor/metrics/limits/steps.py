"""Limits of steps: what makes one, where it ends, and how sure that is."""

from __future__ import annotations

# --- steps: how sure they are, by what they were found by ------------------------------------------

#: Confidence, 0 to 1, of ranges whose name says that they are steps. Judged: a person put them there.
NAMED_RANGE_CONFIDENCE = 0.95
#: Of ranges around these that hold more of the work. Judged: they are named differently.
OUTER_RANGE_CONFIDENCE = 0.85
#: Of work that ends with the update of an optimizer. Judged: nothing else launches these kernels.
UPDATE_CONFIDENCE = 0.85
#: Of graph launches at a period. Judged: a step may launch several graphs.
GRAPH_LAUNCH_CONFIDENCE = 0.8
#: Of passes between waits, or that stand apart, and of one pass that is all of the work. Judged: believed;
#: a loop inside a step may wait as well.
APART_CONFIDENCE = 0.7
#: Of graph launches without rows, by host times alone, if waits follow. Judged: just believed.
NO_ROWS_CONFIDENCE = 0.6
#: Of what ends with a marker of passes that nothing else confirms. Judged: below `BELIEVED`.
MARKER_CONFIDENCE = 0.5

# --- steps: how few operations, repetitions and layers make one -----------------------------------

#: At least this many operations in a step. Judged: fewer are a loop of two kernels.
STEP_OPERATIONS = 8
#: Comparing steps needs this confidence, 0 to 1. Judged: a kernel sequence without confirmation (0.5) may
#: be a block that repeats within a step. Lower, and layers are compared as if they were steps.
BELIEVED = 0.6
#: The least number of repetitions that shows a loop. Judged: two may be chance.
REPEATS = 3
#: The parts between returns of a kernel differ in size by less than this. Judged. Higher, and layers of
#: two kinds are steps; lower, and steps with a rare extra kernel are not found.
SPREAD_RATIO = 0.05
#: Odd parts stand at a constant stride if strides differ by at most this share. Judged: a layer of another
#: kind may hold a kernel more. Higher, and chance makes layers of steps; lower, and uneven layers are
#: steps.
STRIDE_SPREAD_RATIO = 0.1
#: A kernel that returns marks steps if its periods hold this share of the operations. Judged: half.
RETURNS_RATIO = 0.5
#: A part counts as several from this many times the usual size on. Judged: nearer to two than to one.
SEVERAL_FACTOR = 1.5
#: Fewer even returns than this on both sides of an irregular one are no proof of layers. Judged.
LAYERS_AROUND = 8
#: Blocks of UNets and diffusion transformers launch some 10 to 30 kernels, whole ones hundreds. Judged.
DENOISER_OPERATIONS = 100
#: Uneven periods are a recurring group if this share of them returns after the group's length. Judged.
GROUP_RETURNS_RATIO = 0.9
#: Work before the first graph launch is one pass if it is at most this many times the usual one. Judged.
FIRST_PASS_FACTOR = 1.5

# --- steps: where one ends ------------------------------------------------------------------------

#: A boundary moves to where the device regularly idles longer than this, ns. Judged: longer than the gap
#: between two kernels of a full queue.
BOUNDARY_PAUSE_NS = 5_000
#: And this many times longer than at the boundary itself. Judged. Lower, and boundaries move at random.
BOUNDARY_PAUSE_FACTOR = 2.0
#: A step before the first return holds this share of a period. Judged. Lower, and half a step counts as
#: one.
FIRST_STEP_RATIO = 0.9
#: A step after the last boundary holds this share. Judged: its tail may be cut off by the capture.
LAST_STEP_RATIO = 0.75
#: A step shorter than this share of the usual one is dropped, unless it precedes the first. Judged: half.
FRAGMENT_RATIO = 0.5

# --- steps: passes that stand apart, and waits that end them --------------------------------------

#: Passes stand apart if the device idles for this long behind them, ns. Measured (calibration#hst111): the
#: longest wait inside a layer that reads a value back takes 0.1 ms.
APART_NS = 500_000
#: And for this many times as long as anywhere inside. Measured (calibration#hst111): host code between
#: layers takes less. Lower, and layers of a slow host are passes.
APART_FACTOR = 10.0
#: Behind this share of the passes: most of them. Judged.
APART_RATIO = 0.5
#: This many passes or more. Judged: of fewer no size is usual.
APART_PASSES = 6
#: This share of them is of one size. Judged.
APART_EQUAL_RATIO = 0.95
#: And they hold this share of the operations. Judged.
APART_WHOLE_RATIO = 0.9
#: A pass waits at most this often: for its inputs, for its parts, for its result. Judged.
WAITS_A_PASS = 8
#: With fewer repetitions than this short work may as well be layers. Judged.
WAIT_REPEATS = 8
#: One kernel or two between waits may be a loop inside a step. Judged.
WAIT_KERNELS = 3
#: At least this share of the periods runs the same operations. Judged.
WAIT_EQUAL_RATIO = 0.95
#: In this share of the GPU time. Judged.
WAIT_TIME_RATIO = 0.8
#: Each layer of a loop over experts reads back at least this many values. Judged: a router reads one.
READBACKS_A_LAYER = 3

# --- steps: ranges that delimit them --------------------------------------------------------------

#: Steps that hold less of the GPU time between them than this mark only a part of the pass. Judged.
#: Higher, and ranges around the model alone are no steps; lower, and the range of a sampler is one.
PART_OF_PASS_RATIO = 0.8
#: A range of unknown name may delimit steps if it repeats and holds this much of the GPU time. Judged.
UNNAMED_RANGE_RATIO = 0.67
#: Confidence of ranges that repeat like steps but are named differently. Judged: believed, and not
#: certain.
UNKNOWN_NAME_CONFIDENCE = 0.8
#: Confidence of a function of unknown name, which may be a layer's: a marker of passes has to confirm it.
#: Judged.
UNKNOWN_FUNCTION_CONFIDENCE = 0.5
#: Of two kinds of ranges, one inside the other, the outer is preferred if it holds this much more. Judged.
OUTER_RANGE_FACTOR = 1.0 / 0.9
#: A level repeats the same number of times in at least this share of the steps. Judged.
LEVEL_RATIO = 0.8
#: At least this share of the returns of a kernel are the same number of operations apart. Judged.
REGULAR_RETURNS_RATIO = 0.75
#: And the repetitions hold this much of the step. Judged: most of it are layers.
REPEATED_RATIO = 0.5
#: A layer has at least this many operations. Judged: a shorter repetition is a loop over one kernel or
#: two.
LAYER_OPERATIONS = 4
#: Parts that hold layers are passes of a model, of which at most this many make a step. Judged: drafts and
#: their verification, two networks in turn; a longer stride is a loop that does something extra now and
#: then.
PASSES_A_STEP = 8
#: Confidence of steps that may be parts of longer ones. Judged: below `BELIEVED`.
PARTS_CONFIDENCE = 0.5
#: Confidence of graph launches whose end is not recorded. Judged: below `BELIEVED`.
NO_WAIT_CONFIDENCE = 0.5

# --- steps: markers that confirm or refute what repeats -------------------------------------------

#: A segmentation is rejected if fewer of its parts than this share hold the marker. Judged: half.
MARKER_MISSED_RATIO = 0.5
#: It is confirmed if this share of its parts does. Judged. Lower, and layers of which some hold a marker
#: are steps; higher, and steps that skip the sampler are none.
MARKER_HELD_RATIO = 0.8
#: Unmarked steps must hold this share of the GPU time. Judged.
UNMARKED_RATIO = 0.67
#: A marker that confirms unmarked steps adds this to their confidence. Judged: 0.5 is then believed.
CONFIRMED_BY = 0.3
#: And to this at most. Judged: less than the confidence of ranges that name steps.
CONFIRMED_MOST = 0.9
#: A repeated part with one inner range in this share of its occurrences is a layer or a micro-batch.
#: Judged.
INNER_RANGE_RATIO = 0.8
#: Confidence of layers within parts that each have one input or one result. Judged: more than that of
#: repetition alone.
FED_CONFIDENCE = 0.7
#: A compiled program holds at least this share of the GPU time of the capture. Judged.
WHOLE_PROGRAM_RATIO = 0.95
#: The expected number of ends of parts among lost kernels may be at most this. Judged. Higher, and two
#: steps whose boundary was lost are one.
LOST_ENDS = 0.02
#: With more of them confidence is this at most: not believed. Judged.
LOST_ENDS_CONFIDENCE = 0.5
#: Work between two updates that launches this many times the usual kernels holds more than a step. Judged.
EVALUATION_FACTOR = 4
#: With this many kernels the work between updates is a step, not the backward pass of one layer. Judged.
UPDATE_KERNELS = 24
#: And one uninterrupted stretch holds this share of the updates. Judged.
UPDATES_RATIO = 0.25
