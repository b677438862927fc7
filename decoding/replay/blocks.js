/* The blocks of a run's windows, and what of a finished response is needed from the start to keep the layout still. */

const HUES = 8;
const LINES = 4;

/** Blocks of a window: those of its structure, or else those that its passes name. */
class Blocks {
  constructor(window, cells) {
    this.structure = window.structure;
    this.count = 1;
    this.named = new Map(); // cell id -> block
    if (this.structure) {
      this.count = this.structure.ends.length;
      return;
    }
    const turns = new Map(); // block -> the pass that first committed a token of it
    for (const cell of cells) {
      if (cell.block === null) continue;
      this.named.set(cell.id, cell.block);
      const first = cell.history.find(({ what }) => what === "committed");
      turns.set(cell.block, Math.min(first.pass, turns.get(cell.block) ?? Infinity));
    }
    this.order = [...turns.keys()].sort((a, b) => turns.get(a) - turns.get(b));
    this.count = Math.max(1, this.order.length);
  }

  /** Whether there is a division into blocks to be seen. */
  get divided() {
    return this.structure !== null || this.count > 1;
  }

  /** When a block is decoded: 1 for the window's first one. */
  turn(block) {
    return (this.structure ? this.structure.order : this.order).indexOf(block) + 1;
  }

  /** The window's cells from left to right as [block, cells], blocks that nothing names joined to what stands before. */
  split(cells) {
    if (!this.divided) return [[0, cells]];
    const parts = [];
    let block = this.structure ? 0 : null;
    cells.forEach((cell, at) => {
      if (this.structure) while (block < this.count - 1 && at >= this.structure.ends[block]) block += 1;
      else block = this.named.get(cell.id) ?? block ?? this.order[0];
      if (!parts.length || parts.at(-1)[0] !== block) parts.push([block, []]);
      parts.at(-1)[1].push(cell);
    });
    return parts;
  }
}

/** How a run will have ended: blocks by window; by cell id the width in signs, and which cells end a line. */
function survey(run, steps) {
  const response = new Response(run.windows, steps).go(steps.length);
  const breaks = new Set(run.breaks);
  const widths = new Map();
  const lineEnds = new Set();
  for (const { id, token } of response.cells) {
    if (token === null) continue;
    widths.set(id, [...run.texts[token]].length);
    if (breaks.has(token)) lineEnds.add(id);
  }
  const blocks = run.windows.map((window, at) => new Blocks(window, response.made.filter((cell) => cell.window === at)));
  // A structure is known once its window's last diagnostic pass is done.
  const drawn = run.windows.map((window, at) => {
    const last = steps.findLastIndex((step) => step.window === at && step.kind === "diagnostic");
    const first = steps.findIndex((step) => step.window === at);
    return (last < 0 ? first : last) + 1;
  });
  return { blocks, widths, lineEnds, drawn };
}

/** A number with its noun: "1 token", "2 tokens". */
function counted(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

/** 1st, 2nd, 3rd, 4th … */
function ordinal(number) {
  const ends = { one: "st", two: "nd", few: "rd", other: "th" };
  return `${number}${ends[new Intl.PluralRules("en", { type: "ordinal" }).select(number)]}`;
}

/** A probability in a few digits. */
function digits(value, precision = 2) {
  if (value === null) return "unknown";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(precision - 1);
  return value.toPrecision(precision);
}
