"""What any of our pages has to look like, asked of a browser: scripts, each of which returns what is wrong."""

# Texts of a tree that reach beyond their box.
OUTSIDE = """[...document.querySelectorAll('svg.tree g')].flatMap((group) => {
  const frame = group.querySelector('rect').getBoundingClientRect();
  return [...group.querySelectorAll('text')].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom;
  }).map((text) => text.textContent);
})"""
# Contrast by WCAG 2 of texts (4.5) and of marks in charts (3) with the page behind them.
CONTRAST = """(() => {
  const channels = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = channels(colour).slice(0, 3).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)' && colour !== 'transparent') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const bad = [];
  const look = (selector, property, least) => {
    for (const element of document.querySelectorAll(selector)) {
      const colour = getComputedStyle(element)[property];
      if (colour === 'none') continue;
      const found = contrast(colour, behind(element));
      if (found < least) bad.push(`${selector} ${property} ${colour} ${found.toFixed(2)}`);
    }
  };
  for (const text of ['p', 'td', 'th', 'a', 'caption', '.interval', '.paper', 'summary', 'h1', 'h2', 'h3', 'li', 'dt', 'dd',
    'label', 'span', 'button', 'input', 'select', 'textarea']) look(text, 'color', 4.5);
  look('svg.chart text', 'fill', 4.5);
  for (const mark of ['.line', '.marker', '.bar', '.area', '.whisker', '.axis']) look(`svg.chart ${mark}`, 'stroke', 3);
  look('svg.tree text', 'fill', 4.5);
  look('svg.tree path', 'stroke', 3);
  return [...new Set(bad)];
})()"""
