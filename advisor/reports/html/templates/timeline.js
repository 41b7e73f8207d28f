// The timeline: lanes of the document on a canvas, with zoom, places of findings and a readout.
const MARKS = 16, ROW = 11, LANE = 34;

class Timeline extends Viewport {
  constructor(section, doc) {
    super();
    this.section = section;
    // Places of a rank are in its own session time, which is not that of the common axis.
    this.findings = doc.inputs.some((i) => i.rank != null) ? [] : doc.findings;
    this.stretches = doc.inputs.some((i) => i.rank != null) ? [] : stretches(section);
    this.lanes = doc.timeline.lanes;
    this.marks = doc.timeline.marks;
    const bins = Math.max(...this.lanes.map((l) => l.values.length), 1);
    const only = doc.inputs.length === 1 && doc.inputs[0].window_ns;
    [this.low, this.high] = only || [doc.timeline.start_ns, doc.timeline.start_ns + bins * doc.timeline.bin_ns];
    [this.a, this.b] = this.typical();
    this.bin = (this.high - this.low) / bins;
    this.least = Math.max(this.bin * 4, 1000);
    this.placed = this.findings.map((f, i) => ({ i, f })).filter((x) => x.f.time_ranges.length);
    this.hot = null;
    this.picked = null;
    this.place = -1;
    this.cursor = null;
    this.drag = null;
    this.canvas = $("canvas", section);
    this.tip = $(".tip", section);
    this.readout = $(".readout", section);
    this.rows = Math.min(this.placed.length, 8);
    this.top = AXIS + (this.marks.length ? MARKS : 0) + this.rows * ROW + 4;
    this.canvas.style.height = `${this.top + this.lanes.length * LANE + 6}px`;
    this.listen();
    redraws.push(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.draw();
  }

  // The step whose events are on the page, else one of the usual length, with a place of the first finding
  // if any step has one; without steps all.
  typical() {
    const inside = this.marks.filter((m) => m.start_ns >= this.low && m.end_ns <= this.high);
    if (inside.length < 3) return [this.low, this.high];
    const listed = this.stretches.find((e) => !e.place);
    const shared = (m) => (listed ? Math.min(m.end_ns, listed.end) - Math.max(m.start_ns, listed.start) : 0);
    const most = Math.max(...inside.map(shared));
    if (most > 0) return this.around(inside.find((m) => shared(m) === most));
    const lengths = inside.map((m) => m.end_ns - m.start_ns).sort((p, q) => p - q);
    const usual = lengths[Math.floor(lengths.length / 2)];
    const apart = (m) => Math.abs(m.end_ns - m.start_ns - usual);
    const places = this.findings.length ? this.findings[0].time_ranges : [];
    const placed = inside.filter((m) => places.some((r) => r.start_ns < m.end_ns && r.end_ns > m.start_ns));
    return this.around((placed.length ? placed : inside).reduce((p, q) => apart(q) < apart(p) ? q : p));
  }

  around(step) {
    const margin = (step.end_ns - step.start_ns) / 20;
    return [Math.max(step.start_ns - margin, this.low), Math.min(step.end_ns + margin, this.high)];
  }

  x(ns) { return this.gutter + (ns - this.a) / (this.b - this.a) * (this.width - this.gutter - 8); }
  ns(x) { return this.a + (x - this.gutter) / (this.width - this.gutter - 8) * (this.b - this.a); }

  draw() {
    const height = this.clear(["bg", "fg", "muted", "line", "grid", "soft", "hit", "lane1", "lane2", "lane3", "lane4", "lane5", "lane6"]);
    const { g, c } = this;
    this.gutter = this.width < 520 ? 92 : 132;
    this.axis(height);
    this.steps();
    this.hits();
    this.lanes.forEach((lane, i) => this.lane(lane, this.top + i * LANE, c[`lane${i % 6 + 1}`]));
    this.bands(height);
    if (this.drag && this.drag.select) {
      const [p, q] = [this.drag.from, this.drag.to].sort((m, n) => m - n);
      g.globalAlpha = 0.2; g.fillStyle = c.fg; g.fillRect(p, 0, q - p, height); g.globalAlpha = 1;
    }
    if (this.cursor !== null) {
      g.strokeStyle = c.muted; g.beginPath(); g.moveTo(this.cursor, AXIS); g.lineTo(this.cursor, height); g.stroke();
    }
    const whole = this.a <= this.low && this.b >= this.high;
    const at = this.cursor !== null && this.named ? `; ${this.named}` : "";
    this.tell(`${seconds(this.a)} to ${seconds(this.b)}, ${length(this.b - this.a)}${whole ? ", the whole window" : ""}${at}`);
  }

  axis(height) {
    const most = Math.max(Math.floor((this.width - this.gutter) / 120), 2);
    const digits = (step) => Math.min(Math.max(9 - Math.floor(Math.log10(step)), 0), 9);
    this.ticks(height, most, this.gutter + 20, (t, step) => `${(t / 1e9).toFixed(digits(step))}s`);
  }

  label(text, y, colour = this.c.muted) {
    const { g } = this;
    g.textAlign = "right"; g.fillStyle = colour;
    let shown = text;
    while (shown.length > 4 && g.measureText(shown).width > this.gutter - 14) shown = `${shown.slice(0, -2)}…`;
    g.fillText(shown, this.gutter - 8, y);
  }

  clipped(draw) {
    const { g } = this;
    g.save(); g.beginPath(); g.rect(this.gutter, 0, this.width - this.gutter - 8, 4000); g.clip(); draw(); g.restore();
  }

  steps() {
    if (!this.marks.length) return;
    const { g, c } = this;
    this.label("steps", AXIS + MARKS / 2);
    const named = this.marks.every((m) => this.x(m.end_ns) - this.x(m.start_ns) > m.label.length * 7 + 30);
    this.clipped(() => this.marks.forEach((m, i) => {
      if (m.end_ns < this.a || m.start_ns > this.b) return;
      const x = this.x(m.start_ns), w = this.x(m.end_ns) - x;
      g.fillStyle = i % 2 ? c.soft : c.line;
      g.fillRect(x, AXIS + 1, Math.max(w, 0.6), MARKS - 3);
      g.fillStyle = c.fg;
      g.textAlign = "center";
      const text = named ? `${i + 1} ${m.label}` : w > 22 ? String(i + 1) : "";
      g.fillText(text, x + w / 2, AXIS + MARKS / 2);
    }));
  }

  hits() {
    const { g, c } = this, start = AXIS + (this.marks.length ? MARKS : 0);
    this.placed.slice(0, this.rows).forEach(({ i, f }, row) => {
      const y = start + row * ROW, hot = i === this.hot || i === this.picked;
      g.font = `${hot ? "600 " : ""}10.5px system-ui, sans-serif`;
      this.label(`${f.rank}. ${f.code} ${f.cause}`, y + ROW / 2, hot ? c.fg : c.muted);
      this.clipped(() => f.time_ranges.forEach((r) => {
        g.globalAlpha = hot ? 1 : 0.8; g.fillStyle = c.hit;
        g.fillRect(this.x(r.start_ns), y + 2, Math.max(this.x(r.end_ns) - this.x(r.start_ns), 1.2), ROW - 4);
      }));
      g.globalAlpha = 1;
    });
    g.font = "12px system-ui, sans-serif";
  }

  bands(height) {
    const at = this.hot !== null ? this.hot : this.picked;
    if (at === null || !this.findings[at]) return;
    const { g, c } = this;
    this.clipped(() => this.findings[at].time_ranges.forEach((r, i) => {
      const now = at === this.picked && i === this.place;
      g.globalAlpha = now ? 0.45 : 0.22; g.fillStyle = c.hit;
      g.fillRect(this.x(r.start_ns), this.top - 2, Math.max(this.x(r.end_ns) - this.x(r.start_ns), 1.6), height - this.top);
    }));
    g.globalAlpha = 1;
  }

  lane(lane, y, colour) {
    const { g, c } = this, values = lane.values, h = LANE - 8, n = values.length;
    const devices = new Set(this.lanes.map((l) => l.device)).size > 1;
    this.label(devices ? `${lane.device}: ${lane.name}` : lane.name, y + h / 2);
    const width = (this.high - this.low) / n;
    const top = lane.unit === "ratio" ? 1 : Math.max(...values.map((v) => v || 0), 1e-12);
    g.strokeStyle = c.grid;
    g.strokeRect(this.gutter + 0.5, y + 0.5, this.width - this.gutter - 9, h);
    this.clipped(() => {
      const first = Math.max(Math.floor((this.a - this.low) / width), 0);
      const last = Math.min(Math.ceil((this.b - this.low) / width), n);
      const pixels = Math.max(Math.floor(this.width - this.gutter - 8), 1);
      const merge = Math.max(Math.floor((last - first) / pixels), 1);
      // Whole device pixels: bars that touch leave no seam, and rectangles draw fast without a GPU.
      const pixel = (x) => Math.round(x * this.ratio) / this.ratio;
      const peak = [], mean = [];
      for (let i = first; i < last; i += merge) {
        let sum = 0, count = 0, most = 0;
        for (let k = i; k < Math.min(i + merge, last); k++) if (values[k] !== null) { sum += values[k]; count++; most = Math.max(most, values[k]); }
        if (!count) continue;
        const x = pixel(this.x(this.low + i * width)), w = Math.max(pixel(this.x(this.low + Math.min(i + merge, last) * width)) - x, 1 / this.ratio);
        const full = Math.min(most / top, 1) * h, half = Math.min(sum / count / top, 1) * h;
        peak.push([x, y + h - full, w, full]);
        mean.push([x, y + h - half, w, half]);
      }
      g.fillStyle = colour;
      g.globalAlpha = 0.35; peak.forEach((r) => g.fillRect(...r));
      g.globalAlpha = 1; mean.forEach((r) => g.fillRect(...r));
    });
  }

  tell(text) { if (this.readout.textContent !== text) this.readout.textContent = text; }

  // Kernels and copies whose events are on the page, in order of time, each once.
  work() {
    if (this.known) return this.known;
    const all = new Map();
    for (const e of this.stretches) for (const [track, start, length, name] of e.events) {
      if (!e.tracks[track].startsWith("GPU")) continue;
      const from = e.start + start;
      all.set(`${from} ${track} ${name}`, { from, to: from + length, length, name: e.texts[name], label: e.labels[name] || e.texts[name] });
    }
    return (this.known = [...all.values()].sort((p, q) => p.from - q.from));
  }

  // What runs at a time, or ends or begins within `near` of it.
  running(t, near) {
    const here = this.work().filter((w) => w.from <= t && w.to >= t);
    const away = (w) => Math.max(w.from - t, t - w.to);
    return here.length ? here : this.work().filter((w) => away(w) <= near).sort((p, q) => away(p) - away(q)).slice(0, 1);
  }

  // The step, the kernels, the activity and the places at a time: in the tooltip, `top` below the upper edge.
  point(t, top) {
    this.cursor = this.x(t);
    const pixel = (this.b - this.a) / (this.width - this.gutter), near = pixel * 2;
    const rows = [];
    const row = (name, value, css = "") => {
      const line = Object.assign(document.createElement("p"), { className: css });
      line.append(Object.assign(document.createElement("span"), { textContent: name }), ` ${value}`);
      rows.push(line);
    };
    row("at", seconds(t));
    const step = this.marks.findIndex((m) => t >= m.start_ns && t < m.end_ns);
    if (step >= 0) row("step", `${step + 1}, ${this.marks[step].label}, ${length(this.marks[step].end_ns - this.marks[step].start_ns)}`);
    const work = this.running(t, near);
    this.named = work.map((w) => `${w.label}, ${length(w.length)}`).join("; ");
    for (const w of work.slice(0, 3)) {
      row(w.label, length(w.length), "kernel");
      if (w.name !== w.label) row("", w.name, "full");
    }
    for (const lane of this.lanes) {
      const v = lane.values[Math.floor((t - this.low) / (this.high - this.low) * lane.values.length)];
      row(lane.name, v === null || v === undefined ? "no sample" : lane.unit === "ratio" ? `${(100 * v).toFixed(1)} %` : `${v} ${lane.unit}`);
    }
    for (const { f } of this.placed) {
      const r = f.time_ranges.find((p) => t >= p.start_ns - near && t <= p.end_ns + near);
      if (r) row(`${f.rank}. ${f.code}`, `${r.label || f.cause} (${length(r.end_ns - r.start_ns)})`, "place");
    }
    this.tip.replaceChildren(...rows);
    this.tip.hidden = false;
    const x = this.cursor;
    const left = x + 14 + this.tip.offsetWidth > this.width ? x - 14 - this.tip.offsetWidth : x + 14;
    this.tip.style.left = `${Math.max(left, 0)}px`;
    this.tip.style.top = `${Math.max(top, 0)}px`;
    this.draw();
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left;
    if (x < this.gutter || x > this.width - 8) return this.leave();
    return this.point(this.ns(x), event.clientY - box.top + 12);
  }

  // The kernel before or after the cursor, by the keyboard.
  kernel(by) {
    const work = this.work();
    if (!work.length) return;
    const t = this.cursor === null ? (this.a + this.b) / 2 : this.ns(this.cursor);
    const middle = (w) => (w.from + w.to) / 2;
    const slack = 1e-3;
    const next = by > 0 ? work.find((w) => middle(w) > t + slack) : work.findLast((w) => middle(w) < t - slack);
    if (!next) return;
    if (middle(next) < this.a || middle(next) > this.b) {
      const half = (this.b - this.a) / 2;
      this.show(middle(next) - half, middle(next) + half);
    }
    this.point(middle(next), AXIS + 8);
  }

  leave() { this.cursor = null; this.tip.hidden = true; this.draw(); }

  heat(index) {
    this.hot = index;
    const capture = this.section.closest(".capture");
    $$("[data-finding]", capture).forEach((e) => e.classList.toggle("hot", index !== null && Number(e.dataset.finding) === index));
    this.draw();
  }

  pick(index, place = -1) {
    this.picked = index;
    this.place = place;
    const ranges = index === null ? [] : this.findings[index].time_ranges;
    const select = $("[data-highlight]", this.section);
    select.value = index === null ? "" : String(index);
    for (const n of ["previous", "next"]) $(`[data-zoom=${n}]`, this.section).disabled = !ranges.length;
    if (ranges[place]) {
      const r = ranges[place], room = Math.max((r.end_ns - r.start_ns) * 2, this.least * 3);
      this.show(r.start_ns - room, r.end_ns + room);
      this.section.closest(".capture").dispatchEvent(new CustomEvent("place", { detail: r }));
      this.tell(`${place + 1} of ${ranges.length}: ${seconds(r.start_ns)} for ${length(r.end_ns - r.start_ns)}${r.label ? `, ${r.label}` : ""}`);
    } else this.draw();
  }

  step(by) {
    if (this.picked === null && this.placed.length) this.picked = this.placed[0].i;
    if (this.picked === null) return;
    const n = this.findings[this.picked].time_ranges.length;
    this.pick(this.picked, this.place < 0 ? (by > 0 ? 0 : n - 1) : (this.place + by + n) % n);
  }

  listen() {
    const { canvas } = this;
    this.navigate("zoom", {
      Escape: () => { this.pick(null); this.heat(null); this.leave(); },
      ",": () => this.kernel(-1),
      ".": () => this.kernel(1),
    });
    canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) this.point((this.a + this.b) / 2, AXIS + 8); });
    canvas.addEventListener("blur", () => this.leave());
    $("[data-highlight]", this.section).addEventListener("change", (e) => this.pick(e.target.value === "" ? null : Number(e.target.value)));
    $("[data-pin]", this.section).addEventListener("change", (e) => this.section.classList.toggle("pinned", e.target.checked));
    canvas.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      this.drag = { from: e.offsetX, to: e.offsetX, a: this.a, b: this.b, select: !e.shiftKey };
      canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener("pointermove", (e) => {
      if (!this.drag) return this.hover(e);
      this.drag.to = e.offsetX;
      if (!this.drag.select) {
        const d = (this.drag.from - e.offsetX) / (this.width - this.gutter) * (this.drag.b - this.drag.a);
        return this.show(this.drag.a + d, this.drag.b + d);
      }
      return this.draw();
    });
    const done = () => {
      const drag = this.drag;
      this.drag = null;
      if (drag && drag.select && Math.abs(drag.to - drag.from) > 6) {
        const [p, q] = [this.ns(drag.from), this.ns(drag.to)].sort((m, n) => m - n);
        this.show(p, q);
      } else this.draw();
    };
    canvas.addEventListener("pointerup", done);
    canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
    canvas.addEventListener("pointerleave", () => this.leave());
    const capture = this.section.closest(".capture");
    $$("[data-finding]", capture).forEach((e) => {
      const index = Number(e.dataset.finding);
      for (const [on, off] of [["mouseenter", "mouseleave"], ["focusin", "focusout"]]) {
        e.addEventListener(on, () => this.heat(index));
        e.addEventListener(off, () => this.heat(null));
      }
      $$("[data-number]", e).forEach((b) => b.addEventListener("click", () => {
        this.pick(index, Number(b.dataset.number));
        this.section.scrollIntoView({ block: "nearest" });
        const shown = $("[data-events]", capture);
        if (shown) shown.scrollIntoView({ block: "nearest" });
      }));
    });
  }
}

// The stretches whose events are on the page of a capture, with the texts and short names that they number.
function stretches(section) {
  const shown = $("[data-events]", section.closest(".capture"));
  return shown ? shown.events.excerpts.map((e) => ({ ...e, texts: shown.events.texts, labels: shown.events.labels })) : [];
}

function timelines() {
  $$("[data-timeline]").forEach((section) => {
    const doc = JSON.parse(document.getElementById(`${section.dataset.timeline}-drawn`).textContent);
    section.timeline = new Timeline(section, doc);
  });
}
