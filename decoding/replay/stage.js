/* One run on the page: its windows of tokens, what its last pass did, and the posterior beside them. */

/** The elements of a template of the page. */
function template(id) {
  return document.getElementById(id).content.cloneNode(true).firstElementChild;
}

class Stage {
  /** `card` is shared by all runs; `paired`: another run stands beside it. */
  constructor(run, name, card, paired) {
    this.run = run;
    this.card = card;
    this.steps = unpackSteps(run);
    this.known = survey(run, this.steps);
    this.response = new Response(run.windows, this.steps);
    this.elements = new Map(); // cell id -> element
    this.cells = new Map(); // cell id -> cell, as of now
    this.pinned = null; // the window whose posterior is to stay

    this.root = template("run");
    const part = (query) => this.root.querySelector(query);
    part("h2").textContent = name;
    part(".caption").textContent = run.caption;
    part(".prompt p").textContent = run.prompt;
    part(".text p").textContent = run.text;
    for (const [figure, value] of run.figures) part(".summary").append(html("dt", "", figure), html("dd", "", value));
    this.report = part(".report");
    this.windows = run.windows.map((window, at) => this.window(window, at, name));
    part(".windows").append(...this.windows.map(({ root }) => root));
    this.panel(part(".posterior"), paired ? `, ${name}` : "");
  }

  /** The pass numbers at which something happens. */
  get numbers() {
    return this.steps.map(({ number }) => number);
  }

  text(token) {
    return this.run.texts[token];
  }

  // --- parts ----------------------------------------------------------------------------------------------------

  window(window, at, name) {
    const root = template("window");
    const end = window.start + window.length - 1;
    const rate = window.rate === null ? "" : ` · μ = ${window.rate.toFixed(1)}`;
    const inferred = window.length < window.diagnosed ? ` of ${window.diagnosed} diagnosed` : "";
    root.querySelector("h3").textContent = `Window ${at + 1}`;
    root.querySelector(".extent").textContent = `tokens ${window.start}–${end} · L = ${window.length}${inferred}${rate}`;
    const list = root.querySelector(".tokens");
    list.setAttribute("aria-label", `Tokens of window ${at + 1}, ${name}`);
    list.addEventListener("keydown", (event) => this.walk(event, list));
    list.addEventListener("focusin", ({ target }) => this.enter(target));
    list.addEventListener("focusout", () => this.away());
    list.addEventListener("pointerover", ({ target }) => this.enter(target.closest(".cell")));
    list.addEventListener("pointerout", () => this.away());
    return { root, list, marks: root.querySelector(".marks"), layout: "" };
  }

  panel(panel, of) {
    if (!this.run.windows.some(({ structure }) => structure)) {
      panel.remove();
      this.root.classList.add("plain");
      return;
    }
    const finished = new Response(this.run.windows, this.steps).go(this.steps.length).cells;
    const tokenAt = (window, position) => this.text(finished.filter((cell) => cell.window === window)[position].token);
    panel.querySelector("h3").textContent += of;
    this.posterior = new PosteriorPanel(panel, this.run, this.known.blocks, tokenAt);
    const choice = panel.querySelector("select");
    this.run.windows.forEach((_, at) => choice.append(new Option(`window ${at + 1}`, at)));
    choice.addEventListener("change", () => {
      this.pinned = choice.value === "" ? null : Number(choice.value);
      this.showPosterior();
    });
  }

  // --- showing a moment -----------------------------------------------------------------------------------------

  /** Show the run as it stood behind forward pass `number`. */
  show(number) {
    const count = this.steps.filter((step) => step.number <= number).length;
    this.response.go(count);
    this.step = count ? this.steps[count - 1] : null;
    this.finished = count === this.steps.length;
    this.cells = new Map(this.response.cells.map((cell) => [cell.id, cell]));
    let ended = false;
    this.windows.forEach((parts, at) => {
      parts.root.hidden = at > this.response.opened;
      if (parts.root.hidden) return;
      const cells = this.response.cells.filter((cell) => cell.window === at);
      this.arrange(parts, at, cells);
      for (const cell of cells) {
        ended ||= this.run.ends.includes(cell.token) || (this.finished && this.place(cell) >= this.run.useful);
        this.fill(cell, at, ended);
      }
      this.mark(parts, at);
    });
    this.report.textContent = this.sentence();
    this.showPosterior();
    if (this.card.anchor && this.root.contains(this.card.anchor)) this.enter(this.card.anchor);
  }

  /** Bring the window that is decoded into sight. */
  follow() {
    this.windows[this.response.opened]?.root.scrollIntoView({ block: "nearest" });
  }

  drawn(window) {
    return this.response.done >= this.known.drawn[window];
  }

  /** Lay out a window's cells by blocks, unless they lie so already. */
  arrange({ list, root }, at, cells) {
    root.dataset.drawn = this.drawn(at) && this.known.blocks[at].divided;
    const layout = cells.map(({ id }) => id).join();
    if (list.dataset.layout === layout) return;
    list.dataset.layout = layout;
    const focused = document.activeElement;
    const blocks = this.known.blocks[at];
    const parts = blocks.split(cells).map(([block, members]) => {
      const part = html("span", "block");
      part.setAttribute("role", "group");
      if (blocks.divided) {
        part.dataset.block = block;
        part.classList.add(`hue${block % HUES}`, `line${block % LINES}`);
        const turn = html("span", "turn", blocks.turn(block));
        turn.setAttribute("aria-hidden", "true");
        part.append(turn);
        part.setAttribute("aria-label", `block ${block + 1}, decoded ${ordinal(blocks.turn(block))}`);
      }
      for (const cell of members) {
        part.append(this.element(cell));
        if (this.known.lineEnds.has(cell.id)) part.append(document.createElement("br"));
      }
      return part;
    });
    list.replaceChildren(...parts);
    const all = [...list.querySelectorAll(".cell")];
    if (all.length && !all.some((cell) => cell.tabIndex === 0)) all[0].tabIndex = 0;
    if (list.contains(focused)) focused.focus({ preventScroll: true });
  }

  element(cell) {
    if (!this.elements.has(cell.id)) {
      const element = html("span", "cell");
      element.setAttribute("role", "option");
      element.setAttribute("aria-selected", "false");
      element.tabIndex = -1;
      element.dataset.id = cell.id;
      const width = this.known.widths.get(cell.id) ?? 1;
      element.style.minWidth = `min(${Math.max(1, width)}ch, 100%)`;
      element.append(html("span", "sign"));
      this.elements.set(cell.id, element);
    }
    return this.elements.get(cell.id);
  }

  /** Bring a cell's element up to date. */
  fill(cell, window, ended) {
    const element = this.elements.get(cell.id);
    const held = cell.shown ?? (cell.token === null ? null : cell);
    const state = cell.shown ? "tentative" : held ? "committed" : cell.waiting ? "remasked" : "masked";
    const marks = [state];
    if (cell.justNow) marks.push("fresh");
    if (cell.again) marks.push(cell.changed ? "changed" : "again");
    if (ended && state === "committed") marks.push("wasted");
    const label = this.label(cell, held, state, window);
    if (element.getAttribute("aria-label") === label && element.dataset.marks === marks.join(" ")) return;
    element.dataset.marks = marks.join(" ");
    element.firstChild.textContent = held ? this.text(held.token) : "";
    element.setAttribute("aria-label", label);
  }

  mark({ marks }, at) {
    const passes = {};
    for (const step of this.steps.slice(0, this.response.done)) {
      if (step.window === at) passes[step.kind] = (passes[step.kind] ?? 0) + 1;
    }
    const { structure, instability } = this.run.windows[at];
    const parts = KINDS.filter((kind) => passes[kind]).map((kind) => `${kind} ${passes[kind]}`);
    if (structure && this.run.inferred && this.drawn(at)) parts.push(`P = ${digits(structure.log === null ? 0 : Math.exp(structure.log))}`);
    if (instability !== null && (at < this.response.opened || this.finished)) parts.push(`instability ${instability.toFixed(2)}`);
    marks.textContent = parts.join(" · ");
  }

  showPosterior() {
    if (!this.posterior) return;
    let window = this.pinned;
    if (window === null) {
      const drawn = this.run.windows.map((_, at) => at).filter((at) => at <= this.response.opened && this.drawn(at));
      window = drawn.at(-1) ?? null;
    }
    this.posterior.show(window);
  }

  // --- in words -------------------------------------------------------------------------------------------------

  /** What the last pass did. */
  sentence() {
    const step = this.step;
    if (!step) return "Before the first pass.";
    const done = [];
    const blocks = this.known.blocks[step.window];
    const named = step.block !== null && blocks.divided;
    if (step.kind === "diagnostic") {
      const passes = this.steps.filter(({ window, kind }) => window === step.window && kind === "diagnostic");
      done.push(`diagnostic pass ${passes.indexOf(step) + 1} of ${passes.length}`);
    } else if (step.kind === "weld") {
      done.push(named ? `welds blocks ${this.welded(step)}` : "welds");
    } else {
      done.push(named ? `resolves block ${step.block + 1}, decoded ${ordinal(blocks.turn(step.block))}` : "resolves");
    }
    done[0] = `Pass ${step.number}, window ${step.window + 1}: ${done[0]}.`;
    const total = (key) => step.splices.reduce((sum, splice) => sum + splice[key], 0);
    const changes = [
      [step.remasked.length, "masked again"],
      [step.commits.length, step.kind === "diagnostic" ? "shown, not kept" : "committed"],
      [total("removed"), "taken out"],
      [total("inserted"), "put in"],
    ];
    const told = changes.filter(([count]) => count).map(([count, what]) => `${counted(count, "token")} ${what}`);
    if (told.length) done.push(`${told.join(", ")}.`);
    if (this.finished) done.push(`Finished.`);
    return done.join(" ");
  }

  /** The blocks that a weld works on: those of one boundary, or, of several at once, the first and the last. */
  welded({ window, block }) {
    const { start, structure } = this.run.windows[window];
    const began = this.steps.slice(0, this.response.done).findLast(({ kind, remasked }) => kind === "weld" && remasked.length);
    const inside = (began?.remasked ?? []).map(({ position }) => structure.ends.findIndex((end) => position - start < end));
    const last = Math.max(...inside, block + 1);
    return last > block + 1 ? `${block + 1} to ${last + 1}` : `${block + 1}|${block + 2}`;
  }

  place(cell) {
    return this.response.cells.indexOf(cell);
  }

  blockOf(cell) {
    const part = this.elements.get(cell.id).parentElement;
    return part.dataset.block === undefined || !this.drawn(cell.window) ? null : Number(part.dataset.block);
  }

  label(cell, held, state, window) {
    const parts = [held ? `“${this.text(held.token)}”` : state === "remasked" ? "masked again" : "masked"];
    if (state === "tentative") parts.push("tentative");
    if (held && held.confidence !== null) parts.push(`confidence ${digits(held.confidence)}`);
    if (cell.pass !== null && state === "committed") parts.push(`pass ${cell.pass}`);
    if (cell.again && held) parts.push(`${cell.again === "weld" ? "welded" : "revised"}${cell.changed ? ", changed" : ""}`);
    return `${parts.join(", ")}, token ${this.place(cell)}`;
  }

  /** Everything of one cell, for the card. */
  told(cell) {
    const window = this.run.windows[cell.window];
    const held = cell.shown ?? (cell.token === null ? null : cell);
    const at = this.place(cell);
    const inside = at - window.start;
    const rows = [];
    if (held) {
      rows.push(["token", `id ${this.run.ids[held.token]}`]);
      rows.push(["confidence", held.confidence === null ? "none, put in as it is" : digits(held.confidence, 3)]);
      if (held.others.length) {
        const told = held.others.map(([token, probability]) => `“${this.text(token)}” ${digits(probability)}`);
        rows.push(["most probable", told.join(", ")]);
      }
      rows.push(cell.shown ? ["tentative", `pass ${this.step.number}, masked again behind it`] : ["committed", `pass ${cell.pass}, ${cell.kind}`]);
    }
    const block = this.blockOf(cell);
    const { structure } = window;
    if (block !== null) {
      const unrest = structure ? `, H\u00a0=\u00a0${digits(structure.blocks[block])}, T\u00a0=\u00a0${structure.passes[block]}` : "";
      const turn = this.known.blocks[cell.window].turn(block);
      rows.push(["block", `${block + 1} of window ${cell.window + 1}, decoded ${ordinal(turn)}${unrest}`]);
    }
    if (structure && this.drawn(cell.window) && inside in structure.instability) {
      rows.push(["instability", digits(structure.instability[inside])]);
      const cut = (gap) => (gap in structure.cuts ? digits(structure.cuts[gap]) : "window’s end");
      rows.push(["P(cut)", `${cut(inside - 1)} before, ${cut(inside)} behind`]);
    }
    if (cell.again) {
      const word = cell.again === "weld" ? "welded" : "revised";
      rows.push([word, cell.waiting ? `was “${this.text(cell.before)}”` : cell.changed ? `“${this.text(cell.before)}” before` : "kept its token"]);
    }
    const past = [];
    for (const { pass, kind, what, token, confidence } of cell.history) {
      const doing = what === "committed" ? kind : what;
      past.push([`pass ${pass}`, doing, `“${this.text(token)}”`, confidence === null ? "" : digits(confidence)]);
    }
    return { title: `${held ? `“${this.text(held.token)}”` : "masked"} · token ${at}`, rows, past };
  }

  // --- pointing and walking -------------------------------------------------------------------------------------

  enter(element) {
    const cell = element && this.cells.get(Number(element.dataset.id));
    if (!cell) return;
    this.card.show(element, this.told(cell));
    this.posterior?.point(cell.window, this.place(cell) - this.run.windows[cell.window].start);
  }

  away() {
    this.card.leave();
    this.posterior?.point(null);
  }

  /** Left, Right, Home and End go from token to token; one of them is in the page's tab order. */
  walk(event, list) {
    const cells = [...list.querySelectorAll(".cell")];
    const at = cells.indexOf(document.activeElement);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: cells.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const next = cells[Math.max(0, Math.min(cells.length - 1, to))];
    cells[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}
