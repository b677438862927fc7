/* The drawing of one window's posterior over partitions: ribbons, cut marginals, instability, block count, a table. */

const SVG = "http://www.w3.org/2000/svg";
const COLUMN = { least: 6.5, most: 22 }; // width of a token, pixels
const MARGIN = 9; // at both ends, for the numbers under the first and the last token
const LEAST_SHOWN = 0.005; // probability of a block count that still gets a bar

/** An SVG element; `text` becomes its text node. */
function svg(tag, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

/** An HTML element with a class and a text. */
function html(tag, className = "", text = null) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== null) element.textContent = text;
  return element;
}

class PosteriorPanel {
  /** `tokenAt(window, position)`: what the finished window holds there. */
  constructor(panel, run, blocks, tokenAt) {
    this.run = run;
    this.blocks = blocks;
    this.tokenAt = tokenAt;
    this.body = panel.querySelector(".posterior-body");
    this.window = null;
    this.width = 0;
    new ResizeObserver(() => this.draw(this.window)).observe(this.body);
  }

  /** Show a window's posterior; null where none is drawn yet. */
  show(window) {
    if (window !== this.window || !this.body.firstChild) this.draw(window, true);
  }

  draw(window, anew = false) {
    const width = this.body.clientWidth;
    if (!anew && width === this.width) return;
    this.window = window;
    this.width = width;
    const open = this.body.querySelector("details")?.open;
    const structure = window === null ? null : this.run.windows[window].structure;
    if (window === null) {
      this.body.replaceChildren(html("p", "quiet", "Drawn when the first window's diagnostic passes are done."));
    } else if (structure === null) {
      this.body.replaceChildren(html("p", "quiet", `Window ${window + 1} has no structure that was drawn.`));
    } else {
      const length = this.run.windows[window].length;
      const column = Math.min(COLUMN.most, Math.max(COLUMN.least, (width - 2 * MARGIN) / length));
      this.body.replaceChildren(
        this.figures(window, structure), this.chart(window, structure, length, column), this.table(window, structure),
      );
      if (structure.exact) this.body.insertBefore(this.counts(structure), this.body.lastChild);
      if (open) this.body.querySelector("details").open = true;
    }
    this.point(null);
  }

  /** Point at a position of the window shown. */
  point(window, position) {
    const cursor = this.body.querySelector(".cursor");
    if (!cursor) return;
    cursor.classList.toggle("on", window !== null && window === this.window);
    if (window === this.window) cursor.setAttribute("x", position * cursor.getAttribute("width"));
  }

  figures(window, { ends, log, entropy, inferred, exact, cuts }) {
    const list = html("dl", "figures");
    const row = (name, value) => list.append(html("dt", "", name), html("dd", "", value));
    const told = (count, logProbability) =>
      `${counted(count, "block")}, P = ${logProbability === null ? "0" : digits(Math.exp(logProbability))}` +
      (logProbability === null ? "" : ` (log ${logProbability.toFixed(2)} nats)`);
    if (inferred) {
      const { length, diagnosed } = this.run.windows[window];
      row("length", `${length} of ${diagnosed} tokens, P = ${digits(inferred.probability)}, expected ${digits(inferred.mean, 3)}`);
    }
    const same = exact && exact.map.join() === ends.join();
    const rest = !this.run.inferred ? ", set without regard to the posterior" : same ? ", the most probable one" : "";
    row("chosen", told(ends.length, log) + rest);
    if (exact && !same) row("MAP", told(exact.map.length, exact.log));
    row("entropy", `${digits(entropy, 3)} nats`);
    row("expected", `${(1 + cuts.reduce((sum, cut) => sum + cut, 0)).toFixed(2)} blocks`);
    return list;
  }

  chart(window, structure, length, column) {
    const width = length * column;
    const marginals = { top: 70, height: 80 };
    const unrest = { top: 186, height: 34 };
    const chart = svg("svg", { width: width + 2 * MARGIN, height: 240, viewBox: `${-MARGIN} 0 ${width + 2 * MARGIN} 240`, role: "img" });
    chart.setAttribute("aria-label", this.summary(window, structure));
    const label = (y, text) => chart.append(svg("text", { x: 0, y, class: "label" }, text));
    chart.append(svg("rect", { class: "cursor", x: 0, y: 0, width: column, height: 222 }));

    const { ends, exact } = structure;
    label(10, exact ? "chosen blocks and their order, above the MAP’s" : "chosen blocks and their order");
    this.ribbon(chart, ends, column, 14, 18, (block) => this.blocks[window].turn(block));
    if (exact) this.ribbon(chart, exact.map, column, 34, 7, null);

    label(marginals.top - 12, "P(cut) in each gap; ▲: cut in the chosen partition");
    const floor = marginals.top + marginals.height;
    for (const [share, name] of [[1, "1"], [0.5, "½"], [0, ""]]) {
      const y = floor - share * marginals.height;
      chart.append(svg("path", { class: share ? "level dotted" : "level", d: `M0 ${y}H${width}` }));
      chart.append(svg("text", { class: "scale", x: width, y: y - 2 }, name));
    }
    structure.cuts.forEach((cut, gap) => {
      const height = Math.max(0.5, (cut ?? 0) * marginals.height);
      const [x, thick] = [(gap + 1) * column, Math.max(3, column * 0.45)];
      const chosen = ends.includes(gap + 1);
      const bar = svg("rect", { class: chosen ? "bar chosen" : "bar", x: x - thick / 2, y: floor - height, width: thick, height });
      bar.append(svg("title", {}, `${this.gap(window, gap)}: cut with probability ${digits(cut)}`));
      chart.append(bar);
      if (chosen) chart.append(svg("path", { class: "mark", d: `M${x - 4} ${floor + 9}h8l-4 -7z` }));
    });

    label(unrest.top - 5, "instability h of each token");
    const foot = unrest.top + unrest.height;
    let line = "";
    structure.instability.forEach((value, at) => {
      const y = foot - (value ?? 0) * unrest.height;
      line += `${at ? "L" : "M"}${at * column} ${y}h${column}`;
    });
    chart.append(svg("path", { class: "level", d: `M0 ${foot}H${width}` }), svg("path", { class: "unrest", d: line }));
    const every = column * 5 > 26 ? 5 : 10;
    for (let at = 0; at < length; at += 1) {
      const position = this.run.windows[window].start + at;
      if (position % every) continue;
      chart.append(svg("text", { x: (at + 0.5) * column, y: 234, class: "tick" }, position));
    }
    const frame = html("div", "scroll");
    frame.append(chart);
    return frame;
  }

  /** Blocks as a band: coloured and numbered, or, without turns, as plain brackets. */
  ribbon(chart, ends, column, y, height, turn) {
    ends.forEach((end, block) => {
      const start = block ? ends[block - 1] : 0;
      const [x, width] = [start * column, (end - start) * column];
      const place = { x: x + 0.5, y: y + 0.5, width: Math.max(1, width - 1), height };
      if (!turn) {
        chart.append(svg("path", { class: "bracket", d: `M${x + 1} ${y}v${height - 1}H${x + width - 1}v${1 - height}` }));
        return;
      }
      chart.append(svg("rect", { ...place, class: `band hue${block % HUES}` }));
      if (width > 9) {
        chart.append(svg("text", { x: x + width / 2, y: y + height - 4, class: "turn-number" }, turn(block)));
      }
    });
  }

  /** The posterior law of the number of blocks. */
  counts({ ends, exact }) {
    const part = html("div", "counts");
    part.append(html("p", "label", "number of blocks (●: chosen, ◇: MAP)"));
    const list = html("ol");
    exact.count.forEach((probability, at) => {
      const count = at + 1;
      if (probability < LEAST_SHOWN && count !== ends.length && count !== exact.map.length) return;
      const item = html("li");
      const marks = (count === ends.length ? "●" : "") + (count === exact.map.length ? "◇" : "");
      const bar = html("span", "bar");
      bar.style.width = `${(probability * 100).toFixed(1)}%`;
      const track = html("span", "track");
      track.append(bar);
      item.append(html("span", "count", String(count)), html("span", "marks", marks), track, html("span", "value", digits(probability)));
      list.append(item);
    });
    part.append(list);
    return part;
  }

  table(window, { ends, cuts, edges, exact }) {
    const details = html("details");
    details.append(html("summary", "", "Gaps as a table"));
    const frame = html("div", "scroll");
    const table = html("table");
    const heads = ["gap behind token", "between", "edge logit", "P(cut)", "chosen", ...(exact ? ["MAP"] : [])];
    const head = table.createTHead().insertRow();
    for (const name of heads) {
      const cell = html("th", "", name);
      cell.scope = "col";
      head.append(cell);
    }
    const body = table.createTBody();
    cuts.forEach((cut, gap) => {
      const row = body.insertRow();
      const yes = (list) => (list.includes(gap + 1) ? "cut" : "–");
      const values = [this.run.windows[window].start + gap, this.between(window, gap), digits(edges[gap], 3), digits(cut), yes(ends)];
      for (const value of [...values, ...(exact ? [yes(exact.map)] : [])]) row.insertCell().textContent = value;
    });
    frame.append(table);
    details.append(frame);
    return details;
  }

  between(window, gap) {
    return `${this.tokenAt(window, gap)} | ${this.tokenAt(window, gap + 1)}`;
  }

  gap(window, gap) {
    return `behind token ${this.run.windows[window].start + gap}`;
  }

  summary(window, { ends, cuts, exact }) {
    const start = this.run.windows[window].start;
    const places = (list) => (list.length > 1 ? `cut behind tokens ${list.slice(0, -1).map((end) => start + end - 1).join(", ")}` : "without a cut");
    const best = cuts.length ? cuts.indexOf(Math.max(...cuts)) : -1;
    const likely = best < 0 ? "" : ` The most probable cut is ${this.gap(window, best)}, with probability ${digits(cuts[best])}.`;
    const map = exact ? ` MAP: ${counted(exact.map.length, "block")}, ${places(exact.map)}.` : "";
    return `Posterior of window ${window + 1}. Chosen: ${counted(ends.length, "block")}, ${places(ends)}.${map}${likely} All gaps are in the table below.`;
  }
}
