// A stretch of time on a canvas: zoom, moving, ticks of its axis, keys, wheel and buttons.
const AXIS = 22;
const seconds = (ns) => `${(ns / 1e9).toFixed(6)}s`;
const length = (ns) => ns >= 1e9 ? `${(ns / 1e9).toFixed(3)} s` : ns >= 1e6 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e3).toFixed(1)} us`;
const KEYS = { "+": "in", "=": "in", "-": "out", _: "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all", n: "next", p: "previous" };

// What is shown goes from `a` to `b` of `low` to `high`, and is never shorter than `least` (all ns).
class Viewport {
  // What zooming keeps in place.
  focus() { return (this.a + this.b) / 2; }

  show(a, b) {
    const whole = this.high - this.low;
    const span = Math.min(Math.max(b - a, Math.min(this.least, whole)), whole);
    const middle = (a + b) / 2;
    this.a = Math.min(Math.max(middle - span / 2, this.low), this.high - span);
    this.b = this.a + span;
    this.draw();
  }

  zoom(factor, at = this.focus()) { this.show(at - (at - this.a) * factor, at + (this.b - at) * factor); }
  move(part) { const d = (this.b - this.a) * part; this.show(this.a + d, this.b + d); }

  act(name) {
    if (name === "in") this.zoom(0.5);
    else if (name === "out") this.zoom(2);
    else if (name === "left") this.move(-0.25);
    else if (name === "right") this.move(0.25);
    else if (name === "all") this.show(this.low, this.high);
    else this.step(name === "next" ? 1 : -1);
  }

  colour(name) {
    const probe = this.probe || (this.probe = this.section.appendChild(Object.assign(document.createElement("i"), { hidden: true })));
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  }

  // An empty canvas in device pixels; returns its height.
  clear(colours) {
    const box = this.canvas.getBoundingClientRect(), ratio = this.ratio = Math.max(devicePixelRatio || 1, 2);
    this.width = box.width || 900;
    const height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const g = this.g = this.canvas.getContext("2d");
    g.scale(ratio, ratio);
    this.c = Object.fromEntries(colours.map((n) => [n, this.colour(n)]));
    g.fillStyle = this.c.bg;
    g.fillRect(0, 0, this.width, height);
    g.font = "12px system-ui, sans-serif";
    return height;
  }

  // Lines at round times, at most `most` of them; `label(t, step)` says what stands above one.
  ticks(height, most, left, label) {
    const { g, c } = this, span = this.b - this.a;
    let step = 10 ** Math.floor(Math.log10(span / most));
    step = [1, 2, 5, 10].map((m) => m * step).find((s) => span / s <= most) || step * 10;
    g.textAlign = "center"; g.textBaseline = "middle";
    for (let t = Math.ceil(this.a / step) * step; t <= this.b; t += step) {
      const x = this.x(t);
      g.strokeStyle = c.grid; g.beginPath(); g.moveTo(x, AXIS - 3); g.lineTo(x, height); g.stroke();
      g.fillStyle = c.muted;
      if (x > left && x < this.width - 24) g.fillText(label(t, step), x, AXIS / 2);
    }
  }

  // Buttons that name an action, keys (`own` are those of the subclass), wheel and double click.
  navigate(buttons, own) {
    const { canvas } = this;
    canvas.addEventListener("keydown", (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      if (own[e.key]) own[e.key]();
      else if (KEYS[e.key]) this.act(KEYS[e.key]);
      else return;
      e.preventDefault();
    });
    $$(`[data-${buttons}]`, this.section).forEach((b) => b.addEventListener("click", () => this.act(b.dataset[buttons])));
    canvas.addEventListener("wheel", (e) => {
      if (e.ctrlKey || e.metaKey) { e.preventDefault(); this.zoom(Math.exp(Math.sign(e.deltaY) * 0.25), this.ns(e.offsetX)); }
      else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) { e.preventDefault(); this.move((e.deltaX || e.deltaY) / 800); }
    }, { passive: false });
    canvas.addEventListener("dblclick", (e) => this.zoom(0.4, this.ns(e.offsetX)));
  }
}
