// Every word of the query must occur in a section; titles weigh more than text.
const query = document.getElementById("query");
const results = document.getElementById("results");
const lower = INDEX.map((entry) => entry.map((text) => text.toLowerCase()));

function score([, page, , title, text], words) {
  let sum = 0;
  for (const word of words) {
    const here = (title.includes(word) ? 8 : 0) + (page.includes(word) ? 4 : 0) + (text.includes(word) ? 1 : 0);
    if (!here) return 0;
    sum += here;
  }
  return sum;
}

function search() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  results.replaceChildren();
  if (!words.length) return;
  const found = lower.map((entry, i) => [score(entry, words), i]).filter(([points]) => points > 0);
  found.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const best = new Map();  // the first section of each page
  for (const [, i] of found) if (!best.has(INDEX[i][0])) best.set(INDEX[i][0], i);
  for (const i of [...best.values()].slice(0, 20)) {
    const [target, page, anchor, title, text] = INDEX[i];
    const link = document.createElement("a");
    link.href = document.body.dataset.up + target + (anchor ? "#" + anchor : "");
    link.textContent = title && title !== page ? page + ": " + title : page;
    const at = Math.max(lower[i][4].indexOf(words[0]) - 40, 0);
    const excerpt = document.createElement("small");
    excerpt.textContent = text.slice(at, at + 140);
    const item = document.createElement("li");
    item.append(link, excerpt);
    results.append(item);
  }
  if (!found.length) results.append("nothing found");
}

query.addEventListener("input", search);
if (location.hash.startsWith("#q=")) {
  query.value = decodeURIComponent(location.hash.slice(3));
  search();
}
document.documentElement.dataset.ready = "yes";
