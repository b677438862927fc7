/* The page: reads the data, puts up one run or two, and moves both through their passes in step. */

const ANNOUNCE_AFTER = 500; // milliseconds without another move
const THEMES = ["auto", "light", "dark"];

const { runs } = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const [slider, play, speed, moment, live] = ["slider", "play", "speed", "moment", "live"].map(byId);

const card = new Card(byId("card"));
const names = runs.map(({ name }, at) => (runs.length > 1 ? `${"AB"[at]} · ${name}` : name));
const stages = runs.map((run, at) => new Stage(run, names[at], card, runs.length > 1));
const stops = [...new Set([0, ...stages.flatMap(({ numbers }) => numbers)])].sort((a, b) => a - b);
const last = stops.length - 1;
let timer = 0;
let announcement = 0;

function go(stop, { quietly = false } = {}) {
  const at = Math.max(0, Math.min(last, stop));
  slider.value = at;
  const number = stops[at];
  for (const stage of stages) stage.show(number);
  moment.textContent = `pass ${number} of ${stops[last]}`;
  slider.setAttribute("aria-valuetext", moment.textContent);
  document.body.dataset.pass = number;
  if (at === last) pause();
  if (!quietly) announce();
}

/** Say where the replay stands, once it stands still; the slider says so itself while it has the focus. */
function announce() {
  clearTimeout(announcement);
  announcement = setTimeout(() => {
    if (timer || document.activeElement === slider) return;
    live.textContent = stages.map((stage, at) => `${runs.length > 1 ? `${names[at]}: ` : ""}${stage.sentence()}`).join(" ");
  }, ANNOUNCE_AFTER);
}

function pause() {
  clearInterval(timer);
  timer = 0;
  play.textContent = "Play";
  play.dataset.playing = false;
}

function tick() {
  const next = Number(slider.value) + 1;
  go(next, { quietly: next < last });
  (stages.find(({ finished }) => !finished) ?? stages[0]).follow();
}

function start() {
  if (Number(slider.value) === last) go(0, { quietly: true });
  clearInterval(timer);
  timer = setInterval(tick, 1000 / Number(speed.value));
  play.textContent = "Pause";
  play.dataset.playing = true;
}

function toggle() {
  if (timer) {
    pause();
    announce();
  } else start();
}

/** A key, wherever the focus is: the page's own keys, unless the focused element has a use for them. */
function press(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
  const on = event.target.closest("button, select, summary, input");
  const here = Number(slider.value);
  const moves = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last, ",": here - 1, ".": here + 1 };
  if (event.key === " " && (!on || on === slider)) toggle();
  else if (event.key in moves && on !== slider && !on?.matches("select")) go(moves[event.key]);
  else if ((event.key === "," || event.key === ".") && on === slider) go(moves[event.key]);
  else return;
  event.preventDefault();
}

/** Under the slider, a line a run: what kind each pass is of, and where windows begin. */
function timeline(stage, name) {
  const row = svg("svg", { viewBox: `0 0 ${Math.max(1, last)} 10`, preserveAspectRatio: "none" });
  const heights = { diagnostic: 4, resolve: 7, weld: 10 };
  stage.steps.forEach((step, at) => {
    const x = stops.indexOf(step.number) - 1;
    const opens = at === 0 || stage.steps[at - 1].window !== step.window;
    row.append(svg("rect", { class: step.kind, x, y: 10 - heights[step.kind], width: 1, height: heights[step.kind] }));
    if (opens) row.append(svg("path", { class: "opens", d: `M${x} 0V10` }));
  });
  const line = html("div", "line");
  if (runs.length > 1) line.append(html("span", "whose", name));
  line.append(row);
  return line;
}

function chooseTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
}

/** `#pass=12` opens the page at pass 12. */
function followAddress() {
  const wanted = /^#pass=(\d+)$/.exec(location.hash);
  if (wanted) go(stops.findLastIndex((number) => number <= Number(wanted[1])), { quietly: true });
}

const same = runs.every(({ prompt }) => prompt === runs[0].prompt);
byId("prompt").hidden = !same;
byId("prompt").querySelector("p").textContent = runs[0].prompt;
for (const stage of stages) if (same) stage.root.querySelector(".prompt").remove();
byId("runs").classList.toggle("pair", runs.length > 1);
byId("runs").append(...stages.map(({ root }) => root));
if (runs.length > 1 && matchMedia("(max-width: 60rem)").matches) {
  // The two runs stand below each other: their tokens come first.
  for (const panel of document.querySelectorAll(".posterior")) panel.open = false;
}
byId("timeline").append(...stages.map((stage, at) => timeline(stage, names[at])));
slider.max = last;
slider.addEventListener("input", () => {
  pause();
  go(Number(slider.value));
});
play.addEventListener("click", toggle);
byId("back").addEventListener("click", () => go(Number(slider.value) - 1));
byId("on").addEventListener("click", () => go(Number(slider.value) + 1));
speed.addEventListener("change", () => timer && start());
byId("theme").addEventListener("click", () => {
  chooseTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % THEMES.length]);
});
document.addEventListener("keydown", press);
addEventListener("hashchange", followAddress);
go(last, { quietly: true });
followAddress();
