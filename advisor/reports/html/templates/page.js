"use strict";
// Theme, folding, saving, tables. Everything is on the page already; this only moves it about.
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const redraws = [];

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  const label = $("[data-do=theme] span");
  if (label) label.textContent = name;
  redraws.forEach((draw) => draw());
}

function themes() {
  const names = ["auto", "light", "dark"];
  let at = 0;
  $("[data-do=theme]").addEventListener("click", () => setTheme(names[(at = (at + 1) % 3)]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach((draw) => draw()));
  let opened = [];
  let before = null;
  addEventListener("beforeprint", () => {
    // On paper every finding is open, and the page is light.
    opened = $$(".finding:not([open])");
    opened.forEach((d) => { d.open = true; });
    before = names[at];
    setTheme("light");
  });
  addEventListener("afterprint", () => {
    opened.forEach((d) => { d.open = false; });
    setTheme(before);
  });
}

function folding() {
  const button = $("[data-do=expand]");
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-pressed") !== "true";
    $$("main details").forEach((d) => { d.open = open; });
    button.setAttribute("aria-pressed", String(open));
    button.textContent = open ? "Collapse all" : "Expand all";
  });
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let d = target; d; d = d.parentElement) if (d.tagName === "DETAILS") d.open = true;
  };
  addEventListener("hashchange", reveal);
  reveal();
}

function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream, { headers: { "Content-Type": "application/json" } }).blob();
}

function saving() {
  $$("[data-do=save]").forEach((button) => button.addEventListener("click", async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await unpacked(button.dataset.json));
    link.download = button.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }));
}

// What scrolls sideways can be reached by the keyboard.
function scrolling() {
  const mark = () => $$(".scroll:not([role])").forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
  addEventListener("resize", mark);
  addEventListener("toggle", mark, true);
  mark();
}

// A button at each command, which copies it.
function copying() {
  $$("code.cmd, pre.cmd").forEach((command) => {
    const text = command.textContent.trim();
    const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "copy" });
    button.setAttribute("aria-label", `Copy ${text.slice(0, 60)}`);
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(text); } catch {
        getSelection().selectAllChildren(command);
        document.execCommand("copy");
      }
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    command.after(button);
  });
}

function sortedBy(rows, column, descending) {
  const value = (row) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent.trim().toLowerCase() : Number(cell.dataset.v);
  };
  const keyed = rows.map((row, i) => ({ row, i, v: value(row) }));
  keyed.sort((a, b) => {
    const empty = (a.v === "") - (b.v === "");
    if (empty) return empty;
    const order = typeof a.v === "number" && typeof b.v === "number"
      ? a.v - b.v : String(a.v).localeCompare(String(b.v), "en", { numeric: true });
    return (descending ? -order : order) || a.i - b.i;
  });
  return keyed.map((k) => k.row);
}

function tables() {
  $$("[data-table]").forEach((box) => {
    const table = $("table", box), body = $("tbody", table), original = [...body.rows];
    const count = $(".count", box), search = $("input[type=search]", box);
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      original.forEach((row) => {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((w) => text.includes(w));
        shown += !row.hidden;
      });
      count.textContent = shown === original.length ? `${shown} rows` : `${shown} of ${original.length} rows`;
    });
    $$("[data-sort]", table).forEach((button) => button.addEventListener("click", () => {
      const head = button.closest("th"), column = Number(button.dataset.sort);
      const now = head.getAttribute("aria-sort");
      const first = head.classList.contains("n") ? "descending" : "ascending";
      const other = first === "descending" ? "ascending" : "descending";
      const next = now === null ? first : now === first ? other : null;
      $$("th", table).forEach((th) => th.removeAttribute("aria-sort"));
      if (next) head.setAttribute("aria-sort", next);
      body.append(...(next ? sortedBy(original, column, next === "descending") : original));
    }));
    const whole = $("[data-full]", box);
    if (whole) whole.addEventListener("change", () => box.classList.toggle("whole", whole.checked));
  });
}
