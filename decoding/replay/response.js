/* What each position of a response holds after each pass. Knows no document.
 *
 * A cell is a position with its history. Cells keep their `id` while others are inserted or removed before them, and get
 * the same ids again whenever the passes are gone through again. Tokens are indices into the run's texts.
 */

const KINDS = ["diagnostic", "resolve", "weld"];

function groups(flat, size) {
  const found = [];
  for (let at = 0; at < flat.length; at += size) found.push(flat.slice(at, at + size));
  return found;
}

/** A run's passes as objects. */
function unpackSteps(run) {
  const change = ([position, token, confidence]) => ({ position, token, confidence });
  return run.steps.map(([number, kind, window, block, remasked, commits, splices, others = []]) => ({
    number,
    kind: KINDS[kind],
    window,
    block: block < 0 ? null : block,
    remasked: groups(remasked, 3).map(change),
    commits: groups(commits, 3).map((each, at) => ({ ...change(each), others: groups(others[at] ?? [], 2) })),
    splices: groups(splices, 4).map(([position, removed, inserted, token]) => ({
      position, removed, inserted, token: token < 0 ? null : token,
    })),
  }));
}

class Response {
  constructor(windows, steps) {
    this.windows = windows;
    this.steps = steps;
    this.rewind();
  }

  /** Before the first pass: the first window is open, and all of it is masked. */
  rewind() {
    this.done = 0;
    this.opened = -1;
    this.cells = [];
    this.made = []; // every cell there ever was, by id
    if (this.windows.length) this.open();
  }

  open() {
    this.opened += 1;
    const { start, diagnosed } = this.windows[this.opened];
    this.cells.splice(start, diagnosed, ...this.fresh(diagnosed));
  }

  fresh(count) {
    const cells = Array.from({ length: count }, (_, at) => ({
      id: this.made.length + at,
      window: this.opened,
      token: null, // what it holds, if anything
      confidence: null,
      others: [], // the tokens that it might have got, with their probabilities: [token, probability]
      pass: null,
      kind: null,
      block: null, // that was worked on when it was committed
      shown: null, // what a diagnostic pass shows: {token, confidence, others}
      justNow: false, // committed by the last pass
      before: null, // the token that it was masked with again
      waiting: false, // masked again and not filled yet
      again: null, // the kind of pass that masked it again
      changed: false, // it got another token that way
      history: [], // {pass, kind, token, confidence, what}
    }));
    this.made.push(...cells);
    return cells;
  }

  /** Go to the moment behind the first `count` passes. */
  go(count) {
    if (count < this.done) this.rewind();
    while (this.done < count) this.advance(this.steps[this.done++]);
    return this;
  }

  advance(step) {
    while (this.opened < step.window) this.open();
    for (const cell of this.cells) {
      cell.justNow = false;
      cell.shown = null;
    }
    if (step.kind === "diagnostic") {
      for (const cell of this.cells) if (cell.window === step.window) cell.token = null;
      this.splice(step);
      for (const commit of step.commits) this.show(step, commit);
    } else {
      const { start, length, diagnosed } = this.windows[step.window];
      if (length < diagnosed) this.cells.splice(start + length); // its length was inferred
      for (const remask of step.remasked) this.remask(step, remask);
      for (const commit of step.commits) this.commit(step, commit);
      this.splice(step);
    }
  }

  show(step, { position, token, confidence, others }) {
    const cell = this.cells[position];
    cell.shown = { token, confidence, others };
    cell.history.push({ pass: step.number, kind: step.kind, token, confidence, what: "tentative" });
  }

  remask(step, { position, token, confidence }) {
    const cell = this.cells[position];
    cell.before = token;
    cell.token = null;
    cell.waiting = true;
    cell.again = step.kind;
    cell.history.push({ pass: step.number, kind: step.kind, token, confidence, what: "masked again" });
  }

  commit(step, { position, token, confidence, others }) {
    const cell = this.cells[position];
    if (cell.waiting && cell.before !== token) cell.changed = true;
    const { number: pass, kind } = step;
    Object.assign(cell, { token, confidence, others, pass, kind, justNow: true, waiting: false });
    if (step.block !== null) cell.block = step.block;
    cell.history.push({ pass, kind, token, confidence, what: "committed" });
  }

  splice(step) {
    for (const { position, removed, inserted, token } of step.splices) {
      const cells = this.fresh(inserted);
      for (const cell of cells) {
        if (token === null) continue;
        Object.assign(cell, { token, pass: step.number, kind: step.kind, justNow: true });
        cell.history.push({ pass: step.number, kind: step.kind, token, confidence: null, what: "inserted" });
      }
      this.cells.splice(position, removed, ...cells);
    }
  }
}
