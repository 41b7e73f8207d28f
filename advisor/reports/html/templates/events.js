// Events of stretches of the capture: each kernel, call, copy and range by stream and thread, exactly.
const BAR = 15, HEAD = 17;
const KIND = (track) => /: thread|^thread/.test(track) ? (/NVTX|operators/.test(track) ? "lane4" : "lane3") : "lane2";
const exact = (ns) => `${(ns / 1e3).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 })} us`;

class Events extends Viewport {
  constructor(section, data) {
    super();
    Object.assign(this, { section, least: 200, texts: data.texts, labels: data.labels, excerpts: data.excerpts });
    for (const [name, selector] of Object.entries({ canvas: "canvas", details: "dl", note: ".details p", readout: ".readout", field: "input[type=search]", count: ".count", choice: "[data-excerpt]" })) this[name] = $(selector, section);
    this.listen();
    redraws.push(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.open(0);
  }

  open(index) {
    const e = this.excerpts[index];
    this.index = index;
    this.excerpt = e;
    if (this.choice) this.choice.value = String(index);
    this.events = e.events.map(([track, start, length, name, note, call], i) =>
      ({ i, track, start, end: start + length, length, name: this.texts[name], label: this.labels[name] || this.texts[name], note: this.texts[note], call }));
    this.layout();
    [this.low, this.high] = [0, e.end - e.start];
    [this.a, this.b] = [this.low, this.high];
    this.picked = null;
    this.find();
    this.describe();
  }

  // Rows of a track: an event that begins inside another one lies under it.
  layout() {
    let y = AXIS;
    this.tracks = this.excerpt.tracks.map((name, t) => {
      const stack = [];
      let depth = 1;
      for (const e of this.events.filter((x) => x.track === t)) {
        let row = stack.findIndex((end) => end <= e.start);
        if (row < 0) row = stack.length;
        // What is inside nests: rows below it are free again when it began after they ended.
        stack[row] = Math.max(e.end, e.start + 1);
        e.row = row;
        depth = Math.max(depth, row + 1);
      }
      const track = { name, top: y, depth, colour: KIND(name) };
      y += HEAD + depth * BAR + 5;
      return track;
    });
    this.canvas.style.height = `${y + 4}px`;
  }

  x(ns) { return 8 + (ns - this.a) / (this.b - this.a) * (this.width - 16); }
  ns(x) { return this.a + (x - 8) / (this.width - 16) * (this.b - this.a); }

  focus() { return this.picked === null ? super.focus() : this.events[this.picked].start; }

  draw() {
    const height = this.clear(["bg", "fg", "muted", "grid", "soft", "hit", "lane2", "lane3", "lane4"]);
    const { g, c } = this;
    this.ticks(height, Math.max(Math.floor(this.width / 110), 2), 24, (t) => (t ? length(Math.round(t)) : "0"));
    const { place, start } = this.excerpt;
    if (place) {
      g.globalAlpha = 0.13; g.fillStyle = c.hit;
      g.fillRect(this.x(place[0] - start), AXIS, Math.max(this.x(place[1] - start) - this.x(place[0] - start), 1.5), height - AXIS);
      g.globalAlpha = 1;
    }
    const edges = [];
    g.textAlign = "left";
    for (const t of this.tracks) {
      g.fillStyle = c.soft; g.fillRect(0, t.top, this.width, HEAD - 2);
      g.fillStyle = c.muted; g.fillText(t.name, 8, t.top + HEAD / 2 - 1);
    }
    for (const e of this.events) {
      if (e.end < this.a || e.start > this.b) continue;
      const t = this.tracks[e.track], x = Math.max(this.x(e.start), -2), right = Math.min(this.x(e.end), this.width + 2);
      const w = Math.max(right - x, 1), y = t.top + HEAD + e.row * BAR;
      g.globalAlpha = this.found && !this.found.has(e.i) ? 0.18 : 1;
      g.fillStyle = c[t.colour];
      g.fillRect(x, y, w > 3 ? w - 0.7 : w, BAR - 2);
      if (w > 34) {
        g.fillStyle = c.bg;
        const room = Math.floor((w - 8) / 6.6), from = Math.max(x, 0) + 4;
        g.fillText(e.label.length > room ? `${e.label.slice(0, Math.max(room - 1, 1))}…` : e.label, from, y + BAR / 2 - 1);
      }
      g.globalAlpha = 1;
      const joined = this.picked !== null && (e.call === this.picked || this.events[this.picked].call === e.i);
      if (e.i === this.picked || joined) {
        g.strokeStyle = e.i === this.picked ? c.fg : c.hit; g.lineWidth = 2; g.strokeRect(x, y, w, BAR - 2); g.lineWidth = 1;
        edges.push([e, x, y]);
      }
    }
    const own = edges.find(([e]) => e.i === this.picked);
    g.strokeStyle = c.hit;
    if (own) for (const [e, x, y] of edges) if (e.i !== this.picked) {
      g.beginPath(); g.moveTo(own[1], own[2] + BAR / 2); g.lineTo(x, y + BAR / 2); g.stroke();
    }
    if (this.cursor) { g.strokeStyle = c.muted; g.beginPath(); g.moveTo(this.cursor, AXIS); g.lineTo(this.cursor, height); g.stroke(); }
    const all = this.excerpt.total > this.events.length ? `, the ${this.events.length} longest of ${this.excerpt.total} events` : `, ${this.events.length} events`;
    const text = `${exact(this.a)} to ${exact(this.b)} of ${length(this.high - this.low)}${all}`;
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }

  at(event) {
    const x = event.offsetX, y = event.offsetY, near = (this.b - this.a) / this.width * 3;
    const t = this.tracks.findLast((u) => y >= u.top + HEAD);
    if (!t) return null;
    const row = Math.floor((y - t.top - HEAD) / BAR), ns = this.ns(x);
    const here = this.events.filter((e) => this.tracks[e.track] === t && e.row === row && e.start - near <= ns && e.end + near >= ns);
    const away = (e) => Math.max(e.start - ns, ns - e.end, 0);
    return here.length ? here.reduce((p, q) => (away(q) < away(p) ? q : p)).i : null;
  }

  pick(i, seen = true) {
    this.picked = i;
    const e = i === null ? null : this.events[i];
    if (e && seen && (e.start > this.b || e.end < this.a)) {
      const room = Math.max(e.length * 4, 20_000);
      this.show(e.start - room, e.end + room);
    } else this.draw();
    this.describe();
  }

  describe() {
    const e = this.picked === null ? null : this.events[this.picked];
    const rows = e ? [["event", e.label], ...(e.label === e.name ? [] : [["full name", e.name]]), ["track", this.tracks[e.track].name], ["takes", exact(e.length)],
      ["from", `${exact(e.start)} of this stretch`]] : [];
    if (e && this.excerpt.start) rows.push(["in the capture", `${seconds(this.excerpt.start + e.start)} (${(this.excerpt.start + e.start).toLocaleString("en")} ns)`]);
    if (e && e.note) rows.push(["details", e.note]);
    if (e && e.call >= 0) rows.push(["issued by", `${this.events[e.call].name}, ${exact(e.start - this.events[e.call].start)} before`]);
    const work = e ? this.events.filter((x) => x.call === e.i) : [];
    if (work.length) rows.push(["issued", work.slice(0, 3).map((x) => `${x.label} (${exact(x.length)}, ${exact(x.start - e.start)} later)`).join("; ") + (work.length > 3 ? ` and ${work.length - 3} more` : "")]);
    this.details.replaceChildren(...rows.map(([label, text]) => {
      const row = document.createElement("div");
      row.append(Object.assign(document.createElement("dt"), { textContent: label }), Object.assign(document.createElement("dd"), { textContent: text }));
      return row;
    }));
    this.note.textContent = e ? "" : "Click an event, or press n for the next one, to read its details.";
  }

  find() {
    const words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = this.events.filter((e) => words.every((w) => `${e.label} ${e.name} ${e.note}`.toLowerCase().includes(w)));
    this.found = words.length ? new Set(hits.map((e) => e.i)) : null;
    const sum = hits.reduce((s, e) => s + e.length, 0);
    this.count.textContent = words.length ? `${hits.length} found, ${length(sum)}` : "";
    this.draw();
  }

  // The next event in the order of time, of those found if something is searched for.
  step(by) {
    const order = this.events.filter((e) => !this.found || this.found.has(e.i)).sort((p, q) => p.start - q.start || p.i - q.i);
    if (!order.length) return;
    const now = order.findIndex((e) => e.i === this.picked);
    const first = by > 0 ? 0 : order.length - 1;
    this.pick(order[now < 0 ? first : (now + by + order.length) % order.length].i);
  }

  place(range) {
    const i = this.excerpts.findIndex((e) => e.place && e.place[0] === range.start_ns && e.place[1] === range.end_ns);
    if (i >= 0) this.open(i);
    else this.note.textContent = "The events of this place are not on the page: advisor export perfetto --with-trace writes them all.";
    return i >= 0;
  }

  listen() {
    const { canvas, section } = this;
    this.navigate("act", { Escape: () => this.pick(null), "/": () => this.field.focus() });
    this.field.addEventListener("input", () => this.find());
    this.field.addEventListener("keydown", (e) => { if (e.key === "Enter") this.step(e.shiftKey ? -1 : 1); });
    if (this.choice) this.choice.addEventListener("change", () => this.open(Number(this.choice.value)));
    canvas.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      this.drag = { from: e.offsetX, a: this.a, b: this.b, far: 0 };
      canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener("pointermove", (e) => {
      const drag = this.drag;
      if (!drag) { const i = this.at(e); canvas.title = i === null ? "" : `${this.events[i].label}\n${this.events[i].name}\n${exact(this.events[i].length)}`; return; }
      const d = (drag.from - e.offsetX) / (this.width - 16) * (drag.b - drag.a);
      drag.far = Math.max(drag.far, Math.abs(drag.from - e.offsetX));
      if (drag.far > 3) this.show(drag.a + d, drag.b + d);
    });
    canvas.addEventListener("pointerup", (e) => {
      const drag = this.drag;
      this.drag = null;
      if (drag && drag.far <= 3) this.pick(this.at(e), false);
    });
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    const capture = section.closest(".capture");
    if (capture) capture.addEventListener("place", (e) => this.place(e.detail));
  }
}

function events() {
  $$("[data-events]").forEach((section) => {
    section.events = new Events(section, JSON.parse(document.getElementById(section.dataset.events).textContent));
  });
}

themes();
folding();
saving();
copying();
scrolling();
tables();
events();
timelines();
document.documentElement.dataset.ready = Math.round(performance.now());
