// Every text against what lies behind it, by the rule of WCAG 2: the ones that are too faint.
(() => {
  const parse = (colour) => {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    return numbers.length > 3 ? numbers : [...numbers, 1];
  };
  const over = (f, b) => [0, 1, 2].map((i) => f[i] * f[3] + b[i] * (1 - f[3])).concat(1);
  const luminance = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((v) => {
      const part = v / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((b, f) => over(f, b), [255, 255, 255, 1]);
  };
  const skipped = "svg, canvas, script, style, button:disabled, [aria-hidden=true], .seen, .skip";
  const poor = [];
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || e.closest(skipped)) continue;
    const own = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim());
    const text = own.join("");
    if (!text) continue;
    const style = getComputedStyle(e), back = behind(e), size = parseFloat(style.fontSize);
    const [low, high] = [luminance(over(parse(style.color), back)), luminance(back)]
      .sort((x, y) => x - y);
    const ratio = (high + 0.05) / (low + 0.05);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) poor.push(`${text.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return poor;
})()
