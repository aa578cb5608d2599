// The list of runs, and the page of one run. Every text from a run goes through textContent, never through HTML.

import { chart, short } from "/page/chart.js";

const REFRESH_MS = 5000;
const CONSOLE_LINES = 300;
const LISTED_RUNS = 500;
const main = document.getElementById("main");

/** make("p", {class: "quiet"}, "text", child, ...) */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const quiet = (text) => make("span", { class: "quiet" }, text);
const badge = (state) => make("span", { class: `badge ${state}` }, state);
const tags = (run) => run.tags.map((tag) => make("span", { class: "tag", title: tag }, tag));
const when = (seconds) => new Date(seconds * 1000).toLocaleString();
const plural = (count, word) => `${count.toLocaleString()} ${word}${count === 1 ? "" : "s"}`;
function runLink(run) {
  const [entity, project, name] = [run.entity, run.project, run.name].map(encodeURIComponent);
  return `/${entity}/${project}/runs/${name}`;
}

function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

function duration(seconds) {
  if (!(seconds >= 0)) return null;
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h ? `${h} h ${m} min` : m ? `${m} min ${Math.floor(s)} s` : `${Number(s.toPrecision(3))} s`;
}

async function fetchJson(path) {
  const answer = await fetch(path);
  if (answer.status === 404) throw new Error("There is no such run on this server.");
  if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
  return answer.json();
}

function table(heads, rows, kind = "scroll") {
  return make("div", { class: `card ${kind}` }, make("table", {},
    heads && make("thead", {}, make("tr", {}, ...heads.map(([text, kind]) => make("th", kind ? { class: kind } : {}, text)))),
    make("tbody", {}, ...rows)));
}

// ---- the list

async function showList() {
  document.title = "runferry";
  const runs = await fetchJson("/api/runs");
  const filter = make("input", { type: "search", placeholder: "filter by name, tag, state", "aria-label": "filter runs" });
  const list = make("div");
  main.replaceChildren(make("div", { class: "tools" }, make("h1", {}, "Runs ", quiet(runs.length.toLocaleString())), filter), list);
  if (runs.length === 0) {
    list.append(make("p", { class: "quiet" }, "Nothing here yet. Point a client at this address, for example: "),
      make("pre", { class: "card console" }, `RUNFERRY_BASE_URL=${location.origin} RUNFERRY_API_KEY=... runferry sync ./wandb`));
    return;
  }
  const draw = () => list.replaceChildren(...runTables(runs, filter.value.toLowerCase()));
  filter.addEventListener("input", draw);
  draw();
}

/** A table for each project, of the newest runs in whose texts `wanted` occurs. */
function runTables(runs, wanted) {
  const texts = (run) => [run.display_name, run.name, run.group, run.job_type, run.state, run.entity, run.project, ...run.tags];
  const found = runs.filter((run) => texts(run).some((text) => text?.toLowerCase().includes(wanted)));
  const parts = [];
  for (const [project, members] of group(found.slice(0, LISTED_RUNS))) {
    parts.push(make("h2", {}, project, " ", quiet(plural(members.length, "run"))));
    const heads = [["Run"], ["State"], ["Group"], ["Tags"], ["Rows", "number"], ["Last change", "number"]];
    parts.push(table(heads, members.map((run) => make("tr", {},
      make("td", {}, make("a", { href: runLink(run) }, run.display_name), " ", quiet(run.display_name === run.name ? "" : run.name)),
      make("td", {}, badge(run.state)),
      make("td", {}, [run.group, run.job_type].filter(Boolean).join(" · ")),
      make("td", {}, ...tags(run)),
      make("td", { class: "number" }, run.history_lines.toLocaleString()),
      make("td", { class: "number" }, when(run.updated_at)))), "runs"));
  }
  const older = found.length - LISTED_RUNS;
  if (older > 0) parts.push(make("p", { class: "quiet" }, `${plural(older, "older run")} not listed; filter to find them.`));
  if (found.length === 0) parts.push(make("p", { class: "quiet" }, "No run matches."));
  return parts;
}

function group(runs) {
  const projects = new Map();
  for (const run of runs) {
    const project = `${run.entity} / ${run.project}`;
    if (!projects.has(project)) projects.set(project, []);
    projects.get(project).push(run);
  }
  return projects;
}

// ---- one run

/** Rows "a.b.c -> value" of a nested object. */
function* flat(value, path = []) {
  if (value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 0) {
    for (const [key, inner] of Object.entries(value)) yield* flat(inner, [...path, key]);
  } else {
    yield [path.join("."), typeof value === "string" ? value : typeof value === "number" ? short(value) : JSON.stringify(value)];
  }
}

function values(title, object, empty) {
  const rows = [...flat(object)].filter(([key]) => key);
  rows.sort(([a], [b]) => (a.startsWith("_") - b.startsWith("_")) || a.localeCompare(b));
  const row = (key, value) => make("tr", {}, make("td", {}, key), make("td", { class: "mono" }, value));
  const body = rows.length
    ? table(null, rows.map(([key, value]) => row(key, key === "_timestamp" ? when(object._timestamp) : value)))
    : make("p", { class: "quiet" }, empty);
  return make("div", {}, make("h2", {}, title), body);
}

/** Config entries travel as {"value": ...}; what the client keeps for itself is left out. */
function ownConfig(config) {
  const entries = Object.entries(config).filter(([key]) => key !== "_wandb");
  const unwrapped = (entry) => (entry && typeof entry === "object" && "value" in entry ? entry.value : entry);
  return Object.fromEntries(entries.map(([key, entry]) => [key, unwrapped(entry)]));
}

function facts(run) {
  const counts = [
    [run.history_lines, "row"], [run.events_lines, "sample"], [run.console_lines, "console line"], [run.files.length, "file"],
    [run.artifacts.length, "artifact"],
  ];
  const pairs = [
    ["Path", `${run.entity} / ${run.project} / ${run.name}`],
    ["Group", run.group],
    ["Job type", run.job_type],
    ["Host", run.host],
    ["Program", run.program],
    ["Commit", run.git_commit],
    ["Sweep", run.sweep],
    ["Runtime", duration(run.summary?._wandb?.runtime ?? run.summary?._runtime)],
    ["Exit code", run.exit_code === null ? null : String(run.exit_code)],
    ["Created", when(run.created_at)],
    ["Last change", when(run.updated_at)],
    ["Holds", counts.map(([count, word]) => plural(count, word)).join(", ")],
  ];
  const known = pairs.filter(([, value]) => value);
  return make("ul", { class: "facts" }, ...known.map(([name, value]) => make("li", {}, make("b", {}, name), value)));
}

function consoleLine(text) {
  const plain = (part) => part.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "");
  let [time, content, error] = ["", text, false];
  const stamped = /^(ERROR )?(\d{4}-\d\d-\d\dT[0-9:.]+) ?(.*)$/s.exec(text);
  if (stamped) [, error, time, content] = stamped;
  else if (text.startsWith("{")) {
    try {
      const line = JSON.parse(text);
      if (typeof line.content === "string") [time, content, error] = [String(line.ts ?? ""), line.content, line.level === "error"];
    } catch { /* a console line that only looks like one */ }
  }
  const clock = make("span", { class: "time" }, time ? `${time.slice(0, 19).replace("T", " ")}  ` : "");
  return make("div", error ? { class: "error" } : {}, clock, plain(content));
}

async function consoleTail(run, path) {
  if (run.console_lines === 0) return null;
  const from = Math.max(0, run.next_line.console - CONSOLE_LINES);
  const text = await (await fetch(`/api/runs/${path}/console?from=${from}`)).text();
  const lines = text.split("\n").filter(Boolean).map((line) => consoleLine(JSON.parse(line).text));
  const all = plural(run.console_lines, "line");
  const title = make("h2", {}, "Console ", quiet(from > 0 ? `last ${lines.length} of ${all}` : all));
  return make("div", {}, title, make("div", { class: "card scroll" }, make("div", { class: "console" }, ...lines)));
}

/** Shows the newest console lines first to hand. */
function toTail(part) {
  const box = part.querySelector(".console")?.parentElement;
  if (box) box.scrollTop = box.scrollHeight;
}

function files(run, path) {
  if (run.files.length + run.missing_files.length === 0) return null;
  const href = (name) => `/api/runs/${path}/files/${name.split("/").map(encodeURIComponent).join("/")}`;
  const rows = run.files.map((file) => make("tr", {}, make("td", {}, make("a", { href: href(file.name), download: "" }, file.name)),
    make("td", { class: "number" }, size(file.size)), make("td", { class: "mono quiet" }, file.md5)));
  const missing = run.missing_files.map((name) => make("tr", {}, make("td", {}, name),
    make("td", { class: "number" }, "missing"), make("td", {}, "announced, never arrived")));
  const heads = [["Name"], ["Size", "number"], ["MD5"]];
  return make("div", {}, make("h2", {}, "Files ", quiet(String(run.files.length))), table(heads, [...rows, ...missing]));
}

function artifacts(run) {
  if (run.artifacts.length === 0) return null;
  const alias = (name) => make("span", { class: "tag", title: name }, name);
  const rows = run.artifacts.map((one) => make("tr", {},
    make("td", {}, one.version === null ? one.name : `${one.name}:v${one.version}`, " ", quiet(one.state === "COMMITTED" ? "" : "not complete")),
    make("td", {}, one.type),
    make("td", {}, one.role === "input" ? "used" : "made"),
    make("td", {}, ...one.aliases.map(alias)),
    make("td", { class: "number" }, one.file_count.toLocaleString()),
    make("td", { class: "number" }, size(one.size))));
  const heads = [["Name"], ["Type"], ["By this run"], ["Aliases"], ["Files", "number"], ["Size", "number"]];
  return make("div", {}, make("h2", {}, "Artifacts ", quiet(String(run.artifacts.length))), table(heads, rows));
}

/** A section of charts that keeps its filter and its place while the page refreshes. */
function chartSection(title, stream, path, xName) {
  const grid = make("div", { class: "charts" });
  const count = quiet("");
  const note = make("p", { class: "quiet" });
  const filter = make("input", { type: "search", placeholder: "filter by name", "aria-label": `filter ${title}` });
  const section = make("section", {}, make("div", { class: "tools" }, make("h2", {}, `${title} `, count), filter), grid, note);
  let drawn = "";
  const refresh = async () => {
    const answer = await fetchJson(`/api/runs/${path}/charts?stream=${stream}&points=700&filter=${encodeURIComponent(filter.value)}`);
    section.hidden = answer.metrics === 0;
    const text = JSON.stringify(answer);
    if (text === drawn) return;
    drawn = text;
    count.textContent = String(answer.metrics);
    grid.replaceChildren(...answer.series.map((series) => chart(series, xName)));
    const notes = [];
    if (answer.left_out > 0) notes.push(`${answer.left_out} more are not drawn; filter by name to see them.`);
    if (answer.unreadable_rows > 0) notes.push(`${plural(answer.unreadable_rows, "row")} could not be read.`);
    if (answer.series.length === 0 && filter.value) notes.push("No name contains this.");
    note.textContent = notes.join(" ");
  };
  let pause;
  filter.addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(refresh, 200); });
  return { section, refresh };
}

async function showRun(entity, project, name) {
  const path = [entity, project, name].map(encodeURIComponent).join("/");
  const head = make("div"), foot = make("div");
  const metrics = chartSection("Metrics", "history", path, "step");
  const system = chartSection("System", "events", path, "s");
  let shown = "";
  const refresh = async () => {
    const run = await fetchJson(`/api/runs/${path}?json=strict`);
    await Promise.all([metrics.refresh(), system.refresh()]);
    const text = JSON.stringify(run);
    if (text !== shown) {
      shown = text;
      document.title = `${run.display_name} · runferry`;
      head.replaceChildren(...[
        make("div", { class: "title" }, make("h1", {}, run.display_name), badge(run.state), ...tags(run)),
        facts(run),
        run.notes ? make("div", { class: "card notes" }, run.notes) : null,
        ...run.alerts.map((alert) => make("div", { class: `card alert ${alert.severity}` },
          make("b", {}, alert.title), ` ${alert.text} `, quiet(when(alert.created_at)))),
      ].filter(Boolean));
      const own = ownConfig(run.config);
      foot.replaceChildren(...[
        make("div", { class: "pair" }, values("Config", own, "No config."), values("Summary", run.summary, "No summary yet.")),
        await consoleTail(run, path),
        files(run, path),
        artifacts(run),
      ].filter(Boolean));
      toTail(foot);
    }
    if (run.state === "running" || run.state === "preempting") setTimeout(() => refresh().catch(report), REFRESH_MS);
  };
  await refresh();
  main.replaceChildren(head, metrics.section, system.section, foot);
  toTail(foot);
}

function report(error) {
  main.prepend(make("p", { class: "card alert ERROR" }, error.message));
}

const place = /^\/([^/]+)\/([^/]+)\/runs\/([^/]+)\/?$/.exec(location.pathname)?.slice(1).map(decodeURIComponent);
if (place) document.getElementById("crumbs").append(`${place[0]} / ${place[1]}`);
(place ? showRun(...place) : showList()).catch((error) => {
  main.replaceChildren();
  report(error);
});
