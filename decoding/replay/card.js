/* The card that says everything of one token: shown beside it while it is pointed at or has the focus. */

const LINGER = 180; // milliseconds in which the pointer can move onto the card

class Card {
  constructor(element) {
    this.element = element;
    this.anchor = null;
    this.timer = 0;
    element.addEventListener("pointerenter", () => clearTimeout(this.timer));
    element.addEventListener("pointerleave", () => this.leave());
    // Escape takes the card away and leaves the focus where it is.
    document.addEventListener("keydown", ({ key }) => key === "Escape" && this.hide());
  }

  /** Show `rows` of [name, value] and a `past` of [pass, what, token, confidence] under a title, beside an element. */
  show(anchor, { title, rows, past }) {
    clearTimeout(this.timer);
    this.anchor = anchor;
    const list = html("dl");
    for (const [name, value] of rows) list.append(html("dt", "", name), html("dd", "", value));
    this.element.replaceChildren(html("p", "title", title), list);
    if (past.length) {
      const table = html("table");
      table.createCaption().textContent = "what it held";
      for (const row of past) {
        const line = table.insertRow();
        for (const value of row) line.insertCell().textContent = value;
      }
      this.element.append(table);
    }
    this.element.hidden = false;
    this.place();
  }

  place() {
    const at = this.anchor.getBoundingClientRect();
    const own = this.element.getBoundingClientRect();
    const room = document.documentElement;
    const left = Math.max(8, Math.min(at.left, room.clientWidth - own.width - 8));
    const below = at.bottom + 6 + own.height <= room.clientHeight || at.top < own.height + 6;
    this.element.style.left = `${left + scrollX}px`;
    this.element.style.top = `${(below ? at.bottom + 6 : at.top - own.height - 6) + scrollY}px`;
  }

  leave() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.hide(), LINGER);
  }

  hide() {
    clearTimeout(this.timer);
    this.element.hidden = true;
    this.anchor = null;
  }
}
