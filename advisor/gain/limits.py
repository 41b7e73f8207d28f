"""Numbers that decide what is replayed, what waits for what, and which gain is worth saying.

As in :mod:`advisor.metrics.limits`: a limit, its unit, where it comes from and what goes wrong if it
moves. What a fix takes out are constants of ``knowledge/whatifs.yaml``.
"""

from __future__ import annotations

# --- what is replayed -----------------------------------------------------------------------------

#: A diagnosis and a what-if replay at most this many operations: some 25 steps of a small decoder. Judged,
#: for the time of a diagnosis; both replay the same, so that they say the same.
DIAGNOSIS_OPS = 20_000
#: A pass that is alone cannot be replayed in part: up to this many. Judged, for its time.
MOST_ALONE_OPS = 60_000
#: Steps before the measured ones, so that the first of these starts as it did. Judged.
LEAD_STEPS = 1
#: A stretch holds at least this many steps. Judged: of fewer none is usual.
STRETCH_STEPS = 3
#: A window that is too long is replayed in at most this many stretches. Judged: more of them are shorter,
#: and show less of how one step leads to the next.
MOST_STRETCHES = 24
#: With this share of the kernels missing, the rest of a step is not the step. Computed: `min_lost_rows` of
#: damaged-capture.
LOST_RATIO = 0.05
#: With this share of a pass that is alone in start-up, the rest is not what a warm one takes. Judged.
COLD_RATIO = 0.10

#: Copies of a stream that run beside kernels for this share of their time may all do so in an untraced step.
#: Measured: of a copy that a program makes beside its kernels 73 % of the time lay there traced, all of it
#: untraced (copy_beside in tests/data/pairs).
BESIDE_RATIO = 0.5

# --- what waits for what --------------------------------------------------------------------------

#: An operation that starts this much later than launch and predecessor explain, and right after another
#: stream's operation, waited for that one (an event), ns. Judged. Lower, and chance joins streams.
JOIN_NS = 10_000
#: Right after: within a tenth of what it waited, at least and at most this, ns. Measured: between a copy and
#: a kernel that waits for it pass 1 to 10 us (offload_exposed in tests/data/pairs).
JOIN_AFTER_NS = 5_000, 15_000
#: A thread without a call for this long has stopped, or has not started yet, ns. Judged.
HANDOVER_NS = 20_000
#: A copy that ran this much inside its call held the call. Judged.
HELD_CALL_RATIO = 0.9
#: Host and device clocks are aligned to some microseconds only: to this, ns. Judged.
SKEW_NS = 20_000
#: Allocating calls that last longer than this and end with the device idle waited for it, ns. Judged.
IMPLICIT_WAIT_NS = 50_000
#: A launch waits for room with this many operations queued. Judged.
QUEUED_OPS = 100
#: And if it takes this much longer than usual, ns. Judged.
BLOCKED_NS = 50_000
#: And this many times as long. Judged. Lower, and slow launches wait.
BLOCKED_FACTOR = 5.0
#: Idle time of this length before an operation is a wait, not a cost of the operation, ns. Judged.
WAIT_NS = 10_000
#: A thread that waits in calls for this share of its longest host times waits there, and works in these.
#: Judged.
WAITS_IN_CALLS_RATIO = 0.1
#: A lead over the GPU is steady over this many steps. Judged: of fewer, chance is steady.
STEADY_STEPS = 4
#: And if it grows by no more than this share of the time, beyond chance. Judged: the host of a step that
#: takes 1 % less than the GPU's part gets ahead by twice this.
LEAD_GROWTH = 0.005
#: Longer gaps between nodes are waits of the graph, not the usual step from node to node, ns. Judged.
NODE_GAP_NS = 5_000
#: This many operations of a kind show how late one starts, or what comes between two. Judged: of fewer a
#: published figure is nearer.
TYPICAL_OPS = 8
#: This many calls of a kind that waited for nothing show what one takes. Judged.
TYPICAL_CALLS = 4
#: This many runs of a kernel inside and outside graphs show its usual time. Judged.
PROVING_RUNS = 8

#: This many eager launches show how long such a call takes on a host. Judged.
TYPICAL_LAUNCHES = 50
#: A host is slow if launch calls take this many times as long as on one that is not. Measured
#: (calibration#traced-calls).
CLEARLY_SLOW = 1.15
#: Tracing slows a host to this pace at most; launch calls that are slower still are slow without it. Measured
#: (calibration#traced-calls): the slowest host timed is at 0.67.
LEAST_PACE = 0.6

# --- what fixes take out --------------------------------------------------------------------------

# What remains, each 0 to 1 in the pessimistic, the middle and the optimistic reading of a fix.

#: Time of the other kernels of a chain beside its longest. Judged.
FUSED_REMAINS = 0.75, 0.5, 0.0
#: Time of kernels on values of 32 bits that are given 16. Measured for the last: on H100 and H200, whose
#: caches then hold more of the values; else judged, half for half of the bytes.
HALVED_REMAINS = 0.75, 0.5, 1 / 3
#: The same in training. Judged: mixed precision leaves norms, softmax and losses in FP32.
HALVED_IN_TRAINING_REMAINS = 1.0, 0.75, 0.5
#: Time of kernels that others absorb. Judged: a part of it moves into these.
ABSORBED_REMAINS = 0.5, 0.0, 0.0
#: The same where the others have the values in registers already. Judged.
IN_REGISTERS_REMAINS = 0.25, 0.0, 0.0
#: What convolutions on ordinary cores reach of their peak. Judged: no more than all of it, at best
#: nothing.
ORDINARY_CORES_REACH = 1.0, 0.5, 0.0
#: Time of lookups in tables that become one kernel, which still reads the rows. Judged.
LOOKUPS_REMAINS = 0.75, 0.5, 0.25
#: Time of products of attention whose scores stay in one kernel. Judged: half of the scores may be masked.
ATTENTION_REMAINS = 1.0, 0.5, 0.25
#: The same without tensor cores. Judged.
SLOW_ATTENTION_REMAINS = 1.0, 1.0, 0.5
#: Where the GPU is as fast as in its fast steps, a call takes this quantile of what calls take there.
#: Judged.
FAST_STEPS_QUANTILE = 0.75, 0.5, 0.25
#: Gaps between nodes of a graph. Judged.
NODE_GAPS_REMAIN = 0.9, 0.75, 0.0
#: Of what one trip over NVLink can save, this share is saved. Judged.
ONE_SHOT_SAVED = 0.25, 0.5, 1.0
#: Of the time of the shortest collective, this share begins a transfer. Judged: the rest moves its bytes.
BEGINS_TRANSFER = 0.5, 0.75, 1.0
#: Time of transfers that move half of their bytes. Judged: in the pessimistic reading narrowing values and
#: widening them again takes half of what is won.
HALVED_TRANSFERS_REMAIN = 0.75, 0.5, 0.5
#: Powers of `rate_loss` (knowledge/whatifs.yaml) by which products stay below a new rate. Judged.
RATE_LOSS_POWERS = 5.0, 1.0, -1.0

#: A shorter kernel consists of its own start and end, ns. Judged. Higher, and fusing small kernels saves
#: more.
SHORT_KERNEL_NS = 10_000
#: Samples resolve the levels of kernels this many times as long as their stamps may be off. Judged.
SHARP_FACTOR = 10
#: Of the time of collectives that could be hidden, this share is in the pessimistic reading. Judged: some
#: collectives end what the next kernel needs.
HIDDEN_AT_WORST = 0.5
#: Where less than this share of the collectives' time could be hidden, overlapping wins nothing. Judged.
HIDDEN_RATIO = 0.01
#: A read-back is a copy to the host of at most this many bytes. Judged.
READBACK_BYTES = 64 << 10
#: This many read-backs a step are decisions inside it. Judged: more than its result, what ends it and a
#: check.
READBACKS_A_STEP = 4
#: From this share of the device's work on, hiding host code between steps is a gain of its own. Measured
#: (`decode_gc` in docs/gain_calibration.md leaves 11 % and runs ahead).
HOST_LEFT_RATIO = 0.2
#: Replays with wider gaps between graph nodes than traced foretell steps after a fix. Measured: 0.5 % off in
#: the median of the labelled pairs; their speed-ups are a tenth (logarithm) too high beside the traced step,
#: of which this part is kept.
KEPT_SPEEDUP = 7 / 8

# --- what is worth saying -------------------------------------------------------------------------

#: The combination holds at most this many fixes. Judged.
MOST_FIXES = 5
#: A step takes about the GPU's own time if it takes at most this many times as long. Measured: a 70B decode
#: that took 1.1 to 1.2 times untraced has 1.26 at the low end of its estimate, a launch-bound one 2.4.
NEAR_OWN_FACTOR = 1.3
#: A fix that makes the step longer by more than this share of it is a loss. Judged.
LOSS_RATIO = 0.0005
#: A fix that gains this many times the time of its cause must explain why. Judged.
CLEARLY_FACTOR = 1.25
#: A fix that saves less than this share of what its cause holds is held up by another cause. Judged: a
#: quarter; higher, and fixes of halves count as held up.
HELD_UP_RATIO = 0.25
#: Fixes are worthwhile together if they save this many times what any saves alone. Judged.
JOINTLY_FACTOR = 2.0
#: A fix saves the time of one before it if behind that one it saves less than this share of what it saves
#: alone. Judged: at half, most of what it takes away is gone already.
REPEATS_RATIO = 0.5
#: A given step time that differs by more than this share from what tracing explains is questioned. Judged.
UNEXPLAINED_RATIO = 0.25
