"use strict";
/* The state is what the address says: run, arm, what it is compared with, parameters, view. Everything else follows. */
(function () {
  const $ = (id) => document.getElementById(id);
  const VIEWS = { curve: "Curve", funnel: "Funnel", payers: "Advertiser spend", requests: "Requests", day: "By hour", runs: "Runs" };
  const TILES = ["expected_ctr", "rcs", "welfare_vs_oracle", "expected_rpm", "revenue_per_request", "cpc_error", "observed_revenue_share"]; // after the guardrails
  const SHOWN = 0.0005; // what is smaller is printed as 0.0 %, and is no guardrail that fails
  const MONEY = "Revenue per request";
  const FIND = { user: "", ad: "", advertiser: "", least: "", most: "", sort: "gain", changed: "1" };
  const client = Array.from(crypto.getRandomValues(new Uint8Array(8)), (b) => b.toString(16).padStart(2, "0")).join("");
  const state = { run: 0, arm: "", against: "", parameters: new Map(), words: [], view: "curve", parameter: "", measure: "", request: null, ad: "", find: { ...FIND } };
  let leftOut = new Map(); // mistyped words, with the reasons
  let about = null, answer = null, exact = null, turn = 0, asking = null, offset = 0;
  const curve = { key: "", points: new Map(), control: null };

  // The address

  function read() {
    const query = new URLSearchParams(location.search);
    state.run = parseInt(query.get("run") || "0", 10) || 0;
    state.arm = query.get("arm") || "";
    state.against = query.get("against") || "";
    state.view = VIEWS[query.get("view")] ? query.get("view") : "curve";
    state.parameter = query.get("parameter") || "";
    state.measure = query.get("measure") || "";
    state.request = query.get("request");
    state.ad = query.get("ad") || "";
    state.find = Object.fromEntries(Object.entries(FIND).map(([key, usual]) => [key, query.has("find." + key) ? query.get("find." + key) : usual]));
    state.words = query.getAll("set");
    state.parameters = new Map();
  }
  function write() {
    const query = new URLSearchParams();
    if (state.run) query.set("run", state.run);
    if (about && state.arm !== about.baseline) query.set("arm", state.arm);
    if (state.against && state.against !== state.arm) query.set("against", state.against);
    for (const word of settings()) query.append("set", word);
    if (state.view !== "curve") query.set("view", state.view);
    if (state.parameter) query.set("parameter", state.parameter);
    if (state.measure) query.set("measure", state.measure);
    if (state.request !== null) query.set("request", state.request);
    if (state.ad) query.set("ad", state.ad);
    for (const [key, usual] of Object.entries(FIND)) if (state.find[key] !== usual) query.set("find." + key, state.find[key]);
    const text = query.toString();
    history.replaceState(null, "", text ? "?" + text : location.pathname);
  }
  /* What is turned, but for words that the last answer had to leave out. */
  const used = () => settings().filter((word) => !leftOut.has(word));
  function settings() {
    return [...Array.from(state.parameters, ([path, value]) => `${path}=${plain(value)}`), ...state.words];
  }
  function query(more, words) {
    const made = new URLSearchParams({ run: state.run, arm: state.arm, client });
    if (state.against) made.set("against", state.against);
    for (const word of words || used()) made.append("set", word);
    for (const [key, value] of Object.entries(more || {})) if (value !== "" && value !== null && value !== undefined) made.set(key, value);
    return made.toString();
  }
  async function fetched(path, signal) {
    const response = await fetch(path, { signal, headers: { accept: "application/json" } });
    const content = await response.json();
    if (!response.ok) throw Object.assign(new Error(content.error || "the server did not answer"), { status: response.status });
    return content;
  }

  // Opening

  async function open() {
    const { runs } = await fetched("/api/runs");
    const select = $("run");
    select.replaceChildren(...runs.map((run) => el("option", { value: run.run, disabled: run.state === "damaged" }, run.name + (run.state === "damaged" ? " (cannot be opened)" : ""))));
    tellDamaged(runs);
    const first = runs.find((run) => run.state !== "damaged");
    if (!first) { $("question").textContent = "No run can be opened."; return; }
    if (!runs[state.run] || runs[state.run].state === "damaged") state.run = first.run;
    select.value = state.run;
    await openRun();
  }
  function tellDamaged(runs) {
    const broken = runs.filter((run) => run.error);
    $("damaged").hidden = !broken.length;
    $("damaged").replaceChildren(el("strong", {}, broken.length === 1 ? "A run cannot be opened" : "Some runs cannot be opened"), el("ul", {}, ...broken.map((run) => el("li", {}, `${run.name}: ${run.error}`))));
  }
  async function openRun() {
    const words = settings();
    $("question").textContent = "Opening the run …";
    try {
      about = await fetched("/api/about?" + new URLSearchParams({ run: state.run, arm: state.arm }));
    } catch (error) {
      if (state.arm) { state.arm = ""; refuse(error.message); return openRun(); }
      $("question").textContent = "";
      refuse(error.message);
      tellDamaged((await fetched("/api/runs")).runs);
      return;
    }
    state.arm = about.arm;
    if (!about.arms.includes(state.against)) state.against = state.arm;
    document.title = shown(`${about.name}: cascade_sim live`);
    fill("arm", about.arms, state.arm, (arm) => (arm === about.baseline ? `${arm} (baseline)` : arm));
    fill("against", about.arms, state.against, (arm) => (arm === state.arm ? `${arm}, as it is` : arm));
    state.parameters = new Map();
    state.words = [];
    for (const word of words) {
      const at = word.indexOf("="), path = word.slice(0, at), parameter = about.parameters.find((k) => k.path === path);
      const text = word.slice(at + 1), value = parameter && parameter.kind === "number" ? Number(text) : text;
      if (parameter && (parameter.kind === "choice" ? parameter.choices.includes(text) : text !== "" && isFinite(value))) state.parameters.set(path, value);
      else state.words.push(word);
    }
    drawParameters();
    drawTabs();
    ask();
  }
  function fill(id, values, value, label) {
    $(id).replaceChildren(...values.map((v) => el("option", { value: v }, label(v))));
    $(id).value = value;
  }

  // Parameters

  function drawParameters() {
    const groups = new Map();
    for (const parameter of about.parameters) {
      if (!groups.has(parameter.group)) groups.set(parameter.group, []);
      groups.get(parameter.group).push(parameter);
    }
    const narrow = matchMedia("(max-width: 900px)").matches;
    $("parameters").replaceChildren(...Array.from(groups, ([name, parameters], i) => {
      const isTurned = parameters.some((parameter) => state.parameters.has(parameter.path));
      return el("fieldset", { "aria-label": name }, el("details", { open: !narrow || i === 0 || isTurned }, el("summary", {}, name), ...parameters.map(drawParameter)));
    }));
    drawWords();
    markTurned();
  }
  function drawParameter(parameter) {
    const id = "parameter-" + parameter.path.replace(/\W/g, "-");
    const value = state.parameters.has(parameter.path) ? state.parameters.get(parameter.path) : parameter.current;
    const back = el("button", { type: "button", class: "plain back", "aria-label": `${parameter.label}: reset to ${plain(parameter.current)}`, onclick: () => { setParameter(parameter, parameter.current); (node.querySelector("input, select") || back).focus(); } }, "back");
    const current = el("div", { class: "top" }, el("span", { class: "current" }, `current ${plain(parameter.current)}`), back);
    let node;
    if (parameter.kind === "choice") {
      const select = el("select", { id, onchange: () => setParameter(parameter, select.value) }, ...parameter.choices.map((c) => el("option", { value: c }, c)));
      select.value = value;
      node = el("div", { class: "parameter", "data-path": parameter.path }, el("div", { class: "top" }, el("label", { for: id }, parameter.label), select), current);
    } else {
      const range = el("input", { type: "range", id, min: parameter.low, max: parameter.high, step: parameter.step, "aria-label": parameter.label });
      const typed = el("input", { type: "number", min: 0, step: "any", "aria-label": `${parameter.label}, as a number` });
      range.value = value === null ? parameter.low : value;
      typed.value = value === null ? "" : plain(value);
      range.addEventListener("input", () => { typed.value = plain(Number(range.value)); setParameter(parameter, Number(range.value), true); });
      typed.addEventListener("change", () => { if (typed.value !== "" && isFinite(Number(typed.value))) { range.value = typed.value; setParameter(parameter, Number(typed.value), true); } });
      node = el("div", { class: "parameter", "data-path": parameter.path }, el("div", { class: "top" }, el("label", { for: id }, parameter.label), typed), range, current);
    }
    return node;
  }
  function setParameter(parameter, value, isDrawn) {
    if (value === parameter.current) state.parameters.delete(parameter.path); else state.parameters.set(parameter.path, value);
    if (!isDrawn) {
      const node = document.querySelector(`[data-path="${parameter.path}"]`);
      for (const input of node.querySelectorAll("input, select")) input.value = value === null ? "" : plain(value);
    }
    markTurned();
    ask();
  }
  function markTurned() {
    for (const node of document.querySelectorAll(".parameter")) {
      const parameter = about.parameters.find((k) => k.path === node.dataset.path), needs = parameter.needs;
      node.classList.toggle("is-turned", state.parameters.has(parameter.path));
      node.hidden = Boolean(needs) && !state.parameters.has(parameter.path) && parameter.current === null && !needs.values.includes(state.parameters.get(needs.path) || (about.parameters.find((k) => k.path === needs.path) || {}).current);
    }
    $("reset").disabled = !settings().length;
  }
  function drawWords() {
    $("words").replaceChildren(...state.words.map((word, i) => el("li", {}, el("code", {}, word), leftOut.has(word) ? el("span", { class: "small" }, " left out ") : null, el("button", { type: "button", class: "plain", "aria-label": `Remove ${word}`, onclick: () => { state.words.splice(i, 1); drawWords(); markTurned(); ask(); } }, "remove"))));
  }

  // Asking: some requests at once, then all; the newest question alone counts

  let pause = 0;
  function ask() {
    write();
    clearTimeout(pause);
    pause = setTimeout(askNow, 25);
  }
  async function askNow() {
    const mine = ++turn;
    if (asking) asking.abort();
    asking = new AbortController();
    exact = null;
    $("answer").classList.add("is-stale");
    $("said").textContent = "";
    try {
      for (const all of ["", "1"]) {
        const found = await fetched("/api/answer?" + query({ all }, settings()), asking.signal);
        if (mine !== turn) return;
        answer = { ...found, asked: asked() };
        leftOut = new Map(found.left_out.map((left) => [left.word, left.why]));
        refuse(found.left_out.map((left) => `${left.word} is left out: ${left.why}`).join("\n"));
        drawWords();
        drawAnswer();
        drawView(found.requests === found.of);
        if (found.requests === found.of) break;
      }
    } catch (error) {
      if (mine !== turn || error.name === "AbortError" || error.status === 409) return;
      const isGone = error.status === undefined;
      answer = null;
      leftOut = new Map();
      refuse(isGone ? "The server does not answer. If it was stopped, start it again and load this page anew." : error.message);
      $("answer").classList.remove("is-stale");
      $("headline").textContent = isGone || error.status >= 500 ? "No answer" : "Invalid parameter value";
      $("question").textContent = questionWords();
      for (const id of ["basis", "tiles", "measures", "mini", ...Object.keys(VIEWS).map((view) => "view-" + view)]) $(id).replaceChildren();
      if (curve.control) curve.control.abort();
      curve.key = "";
      $("same").hidden = $("days").hidden = true;
      $("exact").disabled = true;
    }
  }
  /* A stage as people write it. */
  const said = (stage) => stage.replace(/_/g, "-");
  const asked = () => JSON.stringify([state.run, state.arm, state.against, settings()]);
  function refuse(words) {
    $("refusal").hidden = !words;
    $("refusal").textContent = shown(words);
  }

  // The answer

  function questionWords() {
    const changes = Array.from(state.parameters, ([path, value]) => {
      const parameter = about.parameters.find((k) => k.path === path);
      return `${parameter.label} ${plain(parameter.current)} → ${plain(value)}`;
    }).concat(state.words.filter((word) => !leftOut.has(word)));
    const held = exact || state.against === state.arm ? "the unmodified arm" : `arm ${state.against}`;
    if (!changes.length && state.against === state.arm) return `${about.name}, arm ${state.arm}: change a parameter`;
    return `${about.name}, arm ${state.arm}${changes.length ? ", " + changes.join(", ") : ""}, compared with ${held}`;
  }
  function isSame() {
    return !used().length && state.against === state.arm;
  }
  /* What is on the other side, as tables call it. */
  const before = () => (state.against === state.arm ? "current" : state.against);
  function entries() {
    if (!exact) return answer.measures;
    const point = exact.points[0].metrics, made = {};
    for (const name of Object.keys(about.measures)) {
      if (!point[name]) continue;
      made[name] = { current: exact.current.metrics[name], variant: point[name], lift: point[name].lift, difference: point[name].difference };
    }
    return made;
  }
  function drawAnswer() {
    const measured = entries(), lead = measured[about.lead];
    $("answer").classList.remove("is-stale");
    $("question").textContent = questionWords();
    for (const id of ["headline", "mini"]) $(id).replaceChildren(...headline(lead), ...worseWords(measured));
    drawBasis();
    const names = [...guardrails(measured).map(([, name]) => name), ...TILES].filter((name) => measured[name] && measured[name].variant.value !== null);
    $("tiles").replaceChildren(...names.map((name) => drawTile(name, measured[name])));
    drawMeasures(measured);
    $("same").hidden = !answer.command;
    $("same-words").textContent = exact || before() === "current" ? "The same answer on the command line" : "On the command line, compared with the unmodified arm";
    $("command").textContent = shown(answer.command || "");
    $("exact").disabled = !used().length;
    drawDays();
  }
  /* What users and advertisers get: [guardrail, the first of its measures that is known]. */
  function guardrails(measured) {
    return about.guardrails.map((guardrail) => [guardrail, guardrail.names.find((name) => measured[name])]).filter(([, name]) => name);
  }
  /* Significantly, and by more than is printed as none; a lift over what is not clearly above zero means nothing. */
  function isWorse(guardrail, entry) {
    const lift = entry.lift;
    if (!lift || lift.value === null || lift.low === null || Math.abs(lift.value) < SHOWN || !(entry.current.low > 0)) return false;
    return guardrail.worse > 0 ? lift.low > 0 : lift.high < 0;
  }
  function worseWords(measured) {
    const labels = isSame() ? [] : guardrails(measured).filter(([guardrail, name]) => isWorse(guardrail, measured[name])).map(([guardrail]) => guardrail.label);
    if (!labels.length) return [];
    const last = labels.pop(), isPlural = labels.length || last === "impressions" || last === "clicks";
    const words = `${labels.length ? `${labels.join(", ")} and ` : ""}${last} ${isPlural ? "get" : "gets"} worse.`;
    return [" ", el("span", { class: "costs" }, words[0].toUpperCase() + words.slice(1))];
  }
  /* A run with a market: what is shown here is not what its days brought. */
  function drawDays() {
    const own = about.days && about.days.arms[state.arm], names = own ? Object.keys(own).filter((name) => about.measures[name] && own[name].days !== null) : [];
    $("days").hidden = !names.length;
    if (!names.length) return;
    const cell = (name, side) => el("td", {}, own[name][side] === null ? NONE : level(own[name][side], about.measures[name].unit));
    const rows = names.map((name) => el("tr", {}, el("th", { scope: "row", title: about.measures[name].meaning }, about.measures[name].label), cell(name, "days"), cell(name, "evaluation")));
    $("days").replaceChildren(
      el("strong", {}, "Unlimited budgets and fixed bids. "), `All figures of this page are of the evaluation. The table has beside it what arm ${state.arm} earned, unmodified, in the ${about.days.days === 1 ? "day" : `${plain(about.days.days)} days`} of this run's market${about.days.has_budgets ? ", with budgets and" : ", without budgets but with"} bidders that adapt. What other parameters earn there takes another run.`,
      table(["", "market", "evaluation"], rows));
  }
  function headline(lead) {
    if (about.no_evidence) return [shown(about.no_evidence)];
    if (!lead || lead.current.value === null) return ["Revenue is not identified from this log"];
    const measure = about.measures[about.lead], interval = (text) => el("span", { class: "interval" }, text);
    if (isSame()) return [`${MONEY} is ${level(lead.current.value, measure.unit)} with the current setting `, interval(intervalText(measure, lead.current))];
    const moved = move(measure, lead);
    if (moved.what && moved.what.low === 0 && moved.what.high === 0) return [`${MONEY} does not change`];
    if (!moved.tone) return [`${MONEY}: no significant change against ${exact || before() === "current" ? "the current setting" : before()}: `, moved.text + " ", interval(moved.interval)];
    return [`${MONEY} ${moved.tone === "up" ? "rises" : "falls"} by `, el("span", { class: moved.tone }, moved.text.replace(/^[+−]/, "")), " ", interval(moved.interval)];
  }
  function drawBasis() {
    const of = number(answer.of, 0), n = number(answer.requests, 0);
    const badge = el("span", { class: "badge" + (exact ? " exact" : "") }, exact ? "bootstrapped" : answer.requests < answer.of ? `partial (${n} of ${of})` : "all requests");
    let words = `${of} requests, common random numbers; 95 % CIs for a new traffic sample of this length.`;
    if (exact) words = `The answer of whatif on ${of} requests: bootstrap 95 % CIs, compared with the unmodified arm.`;
    else if (answer.requests < answer.of) words = `${n} of ${of} requests; 95 % CIs for the figures of all of them. Refining …`;
    else if (isSame()) words = `${of} requests; 95 % CIs for a new traffic sample of this length.`;
    const changed = isSame() ? "" : ` ${number(100 * answer.pages_changed, 1)} % of the pages change.`;
    const budgets = about.has_budgets && !exact ? " Budgets are unlimited here; the bootstrap answer replays them." : "";
    $("basis").replaceChildren(badge, words + changed + budgets);
  }
  function drawTile(name, entry) {
    const measure = about.measures[name], moved = move(measure, entry);
    if (isSame()) {
      return el("div", { class: "tile", role: "group", "aria-label": measure.label, title: measure.meaning }, el("div", { class: "label" }, measure.label), el("div", { class: "value" }, level(entry.current.value, measure.unit)), el("div", { class: "interval" }, intervalText(measure, entry.current)));
    }
    const guardrail = about.guardrails.find((each) => each.names.includes(name)), worse = guardrail && isWorse(guardrail, entry);
    return el("div", { class: worse ? "tile worse" : "tile", role: "group", "aria-label": measure.label, title: measure.meaning },
      el("div", { class: "label" }, measure.label, worse ? el("strong", {}, " · gets worse") : null),
      el("div", { class: "value " + moved.tone }, moved.text),
      intervalBar(moved, `${measure.label}: interval ${moved.interval}`),
      el("div", { class: "interval" }, moved.interval),
      el("div", { class: "levels" }, `${level(entry.current.value, measure.unit)} → ${level(entry.variant.value, measure.unit)}`));
  }
  function intervalText(measure, entry) {
    return entry.low === null ? "" : `${level(entry.low, measure.unit)} to ${level(entry.high, measure.unit)}`;
  }
  function drawMeasures(measured) {
    const rows = Object.keys(about.measures).filter((name) => measured[name] && measured[name].variant).map((name) => {
      const measure = about.measures[name], entry = measured[name], moved = move(measure, entry);
      const cell = (side) => el("td", {}, level(side.value, measure.unit), el("span", { class: "interval" }, intervalText(measure, side)));
      return el("tr", {}, el("th", { scope: "row", title: measure.meaning }, measure.label), cell(entry.current), cell(entry.variant), el("td", {}, el("span", { class: "value " + moved.tone }, moved.text), el("span", { class: "interval" }, moved.interval)));
    });
    $("measures").replaceChildren(table(["measure", exact ? "current" : before(), "variant", "change"], rows));
  }
  function table(heads, rows, caption) {
    return el("table", {}, caption ? el("caption", {}, caption) : null, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, ...rows));
  }
  function scrolled(label, ...content) {
    return el("div", { class: "card scroll", tabindex: 0, role: "region", "aria-label": label }, ...content);
  }

  // Views

  function drawTabs() {
    const names = Object.keys(VIEWS).filter((name) => name !== "day" || about.is_log || about.market || (answer && answer.day));
    if (!names.includes(state.view)) state.view = "curve";
    $("tabs").replaceChildren(...names.map((name) => el("button", { type: "button", role: "tab", id: "tab-" + name, "aria-controls": "view-" + name, "aria-selected": name === state.view, tabindex: name === state.view ? 0 : -1, onclick: () => show(name), onkeydown: (event) => arrows(event, names, name) }, VIEWS[name])));
    for (const name of Object.keys(VIEWS)) $("view-" + name).hidden = name !== state.view;
    const row = $("tabs").getBoundingClientRect(), own = $("tab-" + state.view).getBoundingClientRect();
    if (own.right > row.right || own.left < row.left) $("tabs").scrollLeft += own.right > row.right ? own.right - row.right : own.left - row.left;
  }
  function arrows(event, names, name) {
    const steps = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!steps) return;
    event.preventDefault();
    show(names[(names.indexOf(name) + steps + names.length) % names.length]);
    $("tab-" + state.view).focus();
  }
  function show(name) {
    state.view = name;
    write();
    drawTabs();
    drawView(true);
  }
  function drawView(isWhole) {
    if (!answer) return;
    if (answer.day && !$("tab-day")) drawTabs();
    ({ curve: drawCurve, funnel: drawFunnel, payers: drawPayers, requests: () => isWhole && drawRequests(), day: drawDay, runs: () => isWhole && drawRuns() })[state.view]();
  }
  const wide = (view) => Math.max(Math.min($("view-" + view).clientWidth - 34, 1000), 280);

  function drawCurve() {
    const view = $("view-curve"), numeric = about.parameters.filter((k) => !k.needs);
    const last = Array.from(state.parameters.keys()).pop();
    const path = numeric.some((k) => k.path === state.parameter) ? state.parameter : numeric.some((k) => k.path === last) ? last : numeric[0].path;
    const names = ["expected_revenue_per_request", "revenue_per_request", "expected_ctr", "cpc", "rcs", "fill_rate", "welfare_vs_oracle", "expected_rpm"].filter((name) => answer.measures[name]);
    const measure = names.includes(state.measure) ? state.measure : names[0];
    const parameter = about.parameters.find((k) => k.path === path);
    const others = used().filter((word) => !word.startsWith(path + "="));
    const key = JSON.stringify([state.run, state.arm, state.against, path, others]);
    if (!view.querySelector("#curve-parameter") || view.dataset.arm !== `${state.run}/${state.arm}`) {
      view.dataset.arm = `${state.run}/${state.arm}`;
      view.replaceChildren(
        el("div", { class: "controls", "data-live": "" },
          el("label", {}, "over the parameter", el("select", { id: "curve-parameter", onchange: (e) => { state.parameter = e.target.value; write(); drawCurve(); } }, ...numeric.map((k) => el("option", { value: k.path }, k.label)))),
          el("label", {}, "the measure", el("select", { id: "curve-measure", onchange: (e) => { state.measure = e.target.value; write(); drawCurve(); } }, ...names.map((n) => el("option", { value: n }, about.measures[n].label))))),
        el("div", { class: "card", id: "curve-chart" }), el("p", { class: "small", id: "curve-words", role: "status" }));
    }
    $("curve-parameter").value = path;
    $("curve-measure").value = measure;
    if (curve.key !== key) {
      curve.key = key;
      curve.points = new Map();
      if (curve.control) curve.control.abort();
      streamCurve(path, others, key);
    }
    plotCurve(parameter, measure);
  }
  async function streamCurve(path, others, key) {
    const control = (curve.control = new AbortController());
    const asked = new URLSearchParams({ run: state.run, arm: state.arm, against: state.against, client, parameter: path });
    for (const word of others) asked.append("set", word);
    try {
      const response = await fetch("/api/curve?" + asked, { signal: control.signal });
      if (!response.ok) throw new Error((await response.json()).error);
      const reader = response.body.getReader(), decoder = new TextDecoder();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += decoder.decode(value, { stream: true });
        const lines = text.split("\n");
        text = lines.pop();
        for (const line of lines) {
          const point = JSON.parse(line);
          if (curve.key !== key) return;
          if ("value" in point) curve.points.set(plain(point.value), point);
          else refuse(point.error || "");
        }
        if (state.view === "curve") drawCurve();
      }
    } catch (error) {
      if (error.name !== "AbortError") $("curve-words").textContent = shown(error.message);
    }
  }
  function pointOf(measure, entry, x, label, isAll) {
    const moved = move(measure, entry), end = (side) => (moved.what && moved.what[side] !== null ? moved.scale * moved.what[side] : null);
    return { x, label, value: end("value"), low: end("low"), high: end("high"), is_all: isAll, text: `${moved.text} (${moved.interval})` };
  }
  function plotCurve(parameter, name) {
    const measure = about.measures[name], refused = [];
    const points = [];
    parameter.values.forEach((value, i) => {
      const point = curve.points.get(plain(value));
      if (!point) return;
      if (point.error) { refused.push(`${plain(value)}: ${point.error}`); return; }
      points.push(pointOf(measure, point.measures[name], parameter.kind === "choice" ? i : value, plain(value), point.is_all));
    });
    const at = state.parameters.has(parameter.path) ? state.parameters.get(parameter.path) : parameter.current, now = plain(at);
    const whole = points.filter((p) => p.is_all).length, places = points.length;
    // Where the parameter is between two values, the answer itself is a point.
    if (parameter.kind === "number" && at !== null && !points.some((p) => p.label === now) && answer.asked === asked() && answer.measures[name]) points.push(pointOf(measure, answer.measures[name], at, now, answer.requests === answer.of));
    const label = `${measure.label}, change in ${measure.is_near_zero ? "points" : "percent"}, over ${parameter.label}: ` + points.map((p) => `${p.label} ${p.text}`).join("; ");
    $("curve-chart").replaceChildren(el("p", { class: "small" }, `${measure.label}: change ${measure.is_near_zero ? "in points" : "in %"} against ${state.against === state.arm ? "the unmodified arm" : state.against}`), curveChart(points, { width: wide("curve"), parameter: parameter.label, isChoice: parameter.kind === "choice", now, label, current: parameter.current, at }));
    $("curve-words").textContent = `${whole} of ${parameter.values.length - refused.length} values on all requests${places > whole ? "; hollow points are quick ones" : ""}. Orange: the parameter's value.` + (refused.length ? ` Refused: ${refused.join("; ")}` : "");
  }

  /* What may become of one of the best ads: shown, or lost by a scoring stage, the last one first. */
  function fates(scoring) {
    const lost = scoring.slice().reverse().map((stage, i) => ({ name: stage, label: i ? `lost by ${said(stage)}` : "lost in the auction", kind: i === 0 ? "lost-2" : i === 1 ? "lost" : `lost-${3 + (i - 2) % 3}` }));
    return [{ name: "shown", label: "shown", kind: "" }, ...lost];
  }
  function drawFunnel() {
    const { current, variant } = answer.funnel, scoring = about.stages.slice(1), earlier = scoring.slice(0, -1);
    const sets = [["corpus", "Ads"], ...earlier.map((stage, i) => [`${stage}_set`, i ? `Handed to ${said(stage)}` : "Retrieved"]), ["competitive_set", "Ranked"], ["win_set", "Shown"]];
    const rows = sets.map(([key, label]) => el("tr", {}, el("th", { scope: "row" }, label), el("td", {}, number(current[key], current[key] % 1 ? 2 : 0)), el("td", {}, number(variant[key], variant[key] % 1 ? 2 : 0))));
    const cards = [scrolled("Ads by stage", table(["ads of a request", before(), "variant"], rows))];
    if (current.best && variant.best) {
      const who = about.is_log ? "the ranking stage would choose from all candidates" : "are worth most by their true CTR, of those retrieved";
      cards.unshift(el("div", { class: "card" }, el("h2", {}, "Where the best ads go"), el("p", { class: "small" }, `Of the ads that ${who}, as many as there are slots.`),
        el("p", { class: "legend" }, ...fates(scoring).map((fate) => el("span", {}, el("i", { class: fate.kind }), fate.label))),
        fateBars([{ name: before(), best: current.best }, { name: "variant", best: variant.best }], fates(scoring), wide("funnel")),
        el("div", { class: "scroll fates", tabindex: 0, role: "region", "aria-label": "Losses by stage" }, table(["", ...fates(scoring).map((fate) => fate.label)], [[before(), current.best], ["variant", variant.best]].map(([name, best]) => el("tr", {}, el("th", { scope: "row" }, name), ...fates(scoring).map((fate) => el("td", {}, number(100 * best[fate.name], 1) + " %"))))))));
    }
    const lost = about.attribution && about.attribution.stages;
    if (lost) {
      cards.push(scrolled("Losses that the run measured", table(["stage", "share of the loss", "value lost (eCPM)"], lost.map((stage) => el("tr", {}, el("th", { scope: "row" }, said(stage.stage)), el("td", {}, number(100 * stage.share, 1) + " %"), el("td", {}, number(stage.ecpm_lost.value, 1)))), `As the run measured arm ${state.arm} against the whole corpus, on ${number(about.attribution.requests, 0)} requests, with no parameter turned`)));
    }
    $("view-funnel").replaceChildren(...cards);
  }

  function drawPayers() {
    const { tiers, movers } = answer.payers, side = before() === "current" ? "now" : `with ${before()}`;
    const change = (a, b) => (a > 0 ? signed(100 * (b / a - 1), 1) + " %" : b > 0 ? "new" : NONE);
    const rows = tiers.map((row) => el("tr", {}, el("th", { scope: "row" }, row.tier), el("td", {}, number(row.advertisers, 0)), el("td", {}, number(row.paid_current, 2)), el("td", {}, number(row.paid_variant, 2)), el("td", {}, change(row.paid_current, row.paid_variant)), el("td", {}, change(row.clicks_current, row.clicks_variant)), el("td", {}, `${number(row.pay_more, 0)} / ${number(row.pay_less, 0)}`)));
    const most = movers.map((row) => el("tr", {}, el("th", { scope: "row" }, row.advertiser), el("td", {}, number(row.paid_current, 3)), el("td", {}, number(row.paid_variant, 3)), el("td", {}, signed(row.paid_variant - row.paid_current, 3)), el("td", {}, change(row.clicks_current, row.clicks_variant))));
    $("view-payers").replaceChildren(
      scrolled("Advertisers by tier", table([`advertisers by what they pay ${side}`, "how many", `pay ${side}`, "pay with the variant", "payments", "clicks", "pay more / less"], rows, "Expected payments and clicks of 1,000 requests")),
      movers.length ? scrolled("Largest changes", table(["advertiser", `pays ${side}`, "pays with the variant", "difference", "clicks"], most, "Largest changes, of 1,000 requests")) : el("p", { class: "small" }, "No advertiser pays more or less."));
  }

  // Requests

  async function drawRequests() {
    const view = $("view-requests");
    if (!view.querySelector("form")) {
      const field = (name, label, type) => el("label", {}, label, el("input", { name, type: type || "text", autocomplete: "off", step: "any", value: state.find[name] }));
      const form = el("form", { class: "controls", "data-live": "", onsubmit: (event) => { event.preventDefault(); offset = 0; state.find = { ...FIND, changed: "", ...Object.fromEntries(new FormData(form)) }; write(); listRequests(); }, onchange: () => form.requestSubmit() },
        field("user", "user"), field("ad", "ad"), field("advertiser", "advertiser"), field("least", "revenue from", "number"), field("most", "to", "number"),
        el("label", {}, "order", el("select", { name: "sort" }, ...[["gain", "largest gain"], ["loss", "largest loss"], ["revenue", "most revenue"], ["request", "as they came"]].map(([v, l]) => el("option", { value: v }, l)))),
        el("label", { class: "check" }, el("input", { type: "checkbox", name: "changed", value: "1", checked: Boolean(state.find.changed) }), "only pages that change"),
        el("button", {}, "Find"));
      view.replaceChildren(form, el("div", { id: "list" }), el("div", { id: "look" }));
      form.querySelector("select").value = state.find.sort;
    }
    await listRequests();
    if (state.request !== null) await look(state.request, state.ad, false);
  }
  async function listRequests() {
    let found;
    try {
      found = await fetched("/api/requests?" + query({ ...state.find, changed: isSame() ? "" : state.find.changed, offset, all: answer && answer.requests === answer.of ? "1" : "" }));
    } catch (error) {
      if (error.status !== 409) $("list").replaceChildren(el("p", { class: "notice", role: "alert" }, error.message));
      return;
    }
    const rows = found.rows.map((row) => el("tr", {}, el("td", {}, el("button", { type: "button", class: "plain", onclick: () => look(row.request, "", true) }, row.name || String(row.request))), el("td", {}, row.user), el("td", {}, number(row.current, 4)), el("td", {}, number(row.variant, 4)), el("td", {}, signed(row.variant - row.current, 4))));
    const end = Math.min(offset + found.rows.length, found.total);
    const page = (step) => () => { offset = Math.max(offset + step, 0); listRequests(); };
    $("list").replaceChildren(
      found.total ? scrolled("Requests", table(["request", "user", `revenue ${before()}`, "variant", "difference"], rows, `${number(found.total, 0)} of ${number(found.looked_at, 0)} requests; expected revenue`)) : el("p", { class: "small" }, "No request fits."),
      el("div", { class: "pager", "data-live": "" }, el("button", { type: "button", disabled: offset === 0, onclick: page(-12) }, "Back"), el("button", { type: "button", disabled: end >= found.total, onclick: page(12) }, "Next"), el("span", { class: "small" }, found.total ? `${offset + 1} to ${end}` : "")));
  }
  async function look(request, ad, isNew) {
    state.request = request;
    state.ad = ad;
    write();
    let found;
    try {
      found = await fetched("/api/look?" + query({ request, ad }));
    } catch (error) {
      if (error.status !== 409) $("look").replaceChildren(el("p", { class: "notice", role: "alert" }, error.message));
      return;
    }
    const shown = (side) => new Set(found.pages[side].filter((p) => p.slot !== null).map((p) => p.ad));
    const sides = { current: shown("current"), variant: shown("variant") };
    const page = (side, title) => {
      const rows = found.pages[side].map((place) => {
        const kind = place.slot === null ? "is-out" : side === "variant" && !sides.current.has(place.ad) ? "is-new" : "";
        return el("tr", { class: kind }, el("td", {}, place.slot === null ? "next" : String(place.slot)), el("td", {}, el("button", { type: "button", class: "plain", "aria-label": `Why ad ${place.ad}?`, onclick: () => look(request, place.ad, false) }, place.ad)), el("td", {}, place.advertiser), el("td", {}, number(place.bid, 3)), el("td", {}, number(100 * place.pctr, 2)), el("td", {}, place.cpc_micros === null ? NONE : number(place.cpc_micros / 1e6, 3)), el("td", {}, place.clicked === null ? NONE : place.clicked ? "yes" : "no"));
      });
      return scrolled(title, rows.length ? table(["slot", "ad", "advertiser", "bid", "pCTR %", "price", "click"], rows, title) : el("p", {}, `${title}: the page is empty`));
    };
    const input = el("input", { name: "ad", value: ad, autocomplete: "off", "aria-label": "Ad to explain" });
    const form = el("form", { class: "controls", "data-live": "", onsubmit: (event) => { event.preventDefault(); look(request, input.value.trim(), false); } }, el("label", {}, "why not this ad?", input), el("button", {}, "Explain"));
    const parts = [el("h2", { tabindex: -1, id: "looked" }, `Request ${found.name || found.request}, user ${found.user}`), el("div", { class: "sides" }, page("current", before() === "current" ? "Current" : `Arm ${before()}`), page("variant", "Variant")), form];
    if (found.best && found.best.length) parts.push(el("p", { class: "small" }, "Best by true value: " + found.best.map((b) => `${b.ad} (${b.dropped_by ? "lost by " + said(b.dropped_by) : "shown"})`).join(", ")));
    if (found.ad) parts.push(explained(found.ad, found.pages.variant));
    $("look").replaceChildren(...parts);
    if (isNew) { $("looked").focus(); $("looked").scrollIntoView({ block: "start" }); }
  }
  function explained(ad, page) {
    const place = page.find((p) => p.ad === ad.ad && p.slot !== null), named = (stage) => (stage === "ranking" ? "the auction" : said(stage));
    const verdict = place ? `Ad ${ad.ad} of advertiser ${ad.advertiser} wins slot ${place.slot} at ${number(place.cpc_micros / 1e6, 4)}.` : `Ad ${ad.ad} of advertiser ${ad.advertiser} is dropped by ${named(ad.dropped_by)}.`;
    const bids = ad.bids, wins = bids.cascade === null ? `No bid wins a slot: ${bids.why_none}.` : place ? `It would still win with a bid of ${number(bids.cascade, 6)}, and bids ${number(ad.init_bid, 6)}.` : `The bid that would have won: ${number(bids.cascade, 6)}, ${number(bids.cascade / ad.init_bid, 2)} times its own ${number(ad.init_bid, 6)}. It would then have slot ${bids.slot} at ${number(bids.cpc_micros / 1e6, 4)}.`;
    const rows = ad.stages.map((stage) => el("tr", {}, el("th", { scope: "row" }, named(stage.stage)), el("td", {}, stage.rank === null ? NONE : String(stage.rank)), el("td", {}, number(stage.of, 0)), el("td", {}, number(stage.passes, 0)), ...[stage.score, stage.last_in, stage.first_out].map((x) => el("td", {}, x === null ? NONE : String(Number(x.toPrecision(5))))), el("td", {}, (stage.reached ? "" : "not reached; would have been ") + (stage.passed ? "passed" : "dropped"))));
    const why = ad.stages.filter((s) => s.why).map((s) => el("p", {}, `It may not take part: ${s.why}.`));
    const steps = ad.stages.slice(0, -1).filter((stage) => stage.stage in bids).map((stage) => [`to pass ${said(stage.stage)}`, bids[stage.stage]]);
    const need = [...steps, ["to win the auction", bids.auction], [steps.length > 1 ? "to win all" : "to win both", bids.cascade]].map(([label, bid]) => el("tr", {}, el("th", { scope: "row" }, label), el("td", {}, bid === null ? "no bid" : number(bid, 6)), el("td", {}, bid === null || !ad.init_bid ? NONE : "× " + number(bid / ad.init_bid, 3))));
    return el("div", { class: "card" }, el("p", { class: "verdict" }, verdict), el("p", {}, wins), ...why, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The ad's way" }, table(["stage", "rank", "of", "pass", "score", "last in", "first out", "result"], rows)), el("h3", {}, "Least init-bid, all else as it is"), table(["", "bid", "of its own"], need));
  }

  // The day, and runs side by side

  function drawDay() {
    const view = $("view-day"), cards = [], day = answer.day, width = wide("day");
    const axis = day ? { width, start: day.start, step: day.step, unit: day.unit } : {};
    const legend = (names) => el("p", { class: "legend" }, ...names.map(([name, kind]) => el("span", {}, el("i", { class: kind }), name)));
    if (day) {
      for (const [name, title] of [["revenue", "Expected revenue of 1,000 requests"], ["clicks", "Expected clicks of 1,000 requests"]]) {
        if (!day[name + "_variant"]) continue;
        cards.push(el("div", { class: "card" }, el("h2", {}, title), legend([[before(), "current"], ["variant", ""]]), dayChart([{ values: day[name + "_current"], class: "current" }, { values: day[name + "_variant"] }], { ...axis, label: `${title} by ${day.unit}` })));
      }
      cards.push(el("div", { class: "card" }, el("h2", {}, "Requests"), dayChart([{ values: day.requests, class: "current" }], { ...axis, label: `Requests by ${day.unit}` })));
    }
    if (about.market) {
      const arm = about.market[state.arm] ? state.arm : Object.keys(about.market)[0], other = arm !== state.against && about.market[state.against] ? state.against : null;
      cards.push(el("p", { class: "small" }, "As the run measured its market: bidders paced and budgets ran, and no parameter changes that."));
      for (const [name, title] of [["revenue", "Revenue"], ["requests", "Requests"], ["clicks", "Clicks"]]) {
        const lines = [[other, "current"], [arm, ""]].filter(([of]) => of && about.market[of][name]);
        if (lines.length) cards.push(el("div", { class: "card" }, el("h2", {}, `${title} by hour, in the run's market`), legend(lines.map(([of, kind]) => [`arm ${of}`, kind])), dayChart(lines.map(([of, kind]) => ({ values: about.market[of][name], class: kind })), { width, label: `${title} by hour of ${lines.map(([of]) => "arm " + of).join(" and ")}` })));
      }
    }
    view.replaceChildren(...(cards.length ? cards : [el("p", { class: "small" }, "It does not matter here when a request comes.")]));
  }
  async function drawRuns() {
    const view = $("view-runs");
    let runs;
    try {
      runs = (await fetched("/api/compare")).runs;
    } catch (error) {
      view.replaceChildren(el("p", { class: "notice", role: "alert" }, error.message));
      return;
    }
    const whole = runs.filter((run) => run.measures), measured = whole.filter((run) => Object.keys(run.measures).length), bare = whole.filter((run) => !measured.includes(run)), names = Object.keys(about.measures).filter((name) => whole.some((run) => run.measures[name] && run.measures[name].value !== null)).slice(0, 14);
    const rows = names.map((name) => el("tr", {}, el("th", { scope: "row", title: about.measures[name].meaning }, about.measures[name].label), ...measured.map((run) => {
      const entry = run.measures[name];
      return el("td", {}, entry ? level(entry.value, about.measures[name].unit) : NONE, el("span", { class: "interval" }, entry ? intervalText(about.measures[name], entry) : ""));
    })));
    const differs = whole.filter((run) => !run.is_first).map((run) => {
      const n = run.differs.length + run.more, title = el("h2", {}, `${run.name}: what differs from ${whole[0].name}`);
      if (!n) return el("div", { class: "card" }, title, el("p", {}, "Nothing: the scenarios are the same."));
      return el("div", { class: "card" }, title, el("details", { open: n <= 12 }, el("summary", {}, n === 1 ? "1 key" : `${n} keys`), el("ul", { class: "diff" }, ...run.differs.map((line) => el("li", {}, el("code", {}, line)))), run.more ? el("p", { class: "small" }, `and ${run.more} more`) : null));
    });
    view.replaceChildren(
      rows.length ? scrolled("Runs side by side", table(["baseline as the run measured it", ...measured.map((run) => `${run.name} (${run.baseline})`)], rows)) : "",
      bare.length ? el("p", { class: "small" }, `${bare.map((run) => run.name).join(", ")}: an imported log has no measures of its own. Open it to see its arm as it is.`) : "",
      ...differs,
      whole.length < 2 ? el("p", { class: "small" }, "Give several runs to serve to see them side by side.") : "");
  }

  // Exact, link, snapshot

  $("exact").addEventListener("click", async () => {
    const mine = turn, button = $("exact");
    button.disabled = true;
    $("said").textContent = "Asking whatif …";
    try {
      const found = await fetched("/api/exact?" + query());
      if (mine !== turn) return;
      exact = found;
      if (answer.requests < answer.of) answer = { ...answer, requests: answer.of };
      drawAnswer();
      $("said").textContent = "Bootstrap interval shown.";
    } catch (error) {
      if (mine === turn) { refuse(error.message); $("said").textContent = ""; }
    } finally {
      button.disabled = !used().length;
    }
  });
  $("link").addEventListener("click", async () => {
    const link = location.origin + location.pathname + location.search.replace(/([?&])token=[^&]*&?/, "$1");
    try { await navigator.clipboard.writeText(link); $("said").textContent = "The link is copied."; }
    catch { $("said").textContent = link; }
  });
  $("snapshot").addEventListener("click", async () => {
    const style = await (await fetch("/live.css")).text();
    const body = el("div", { class: "layout" });
    for (const part of [$("answer"), ...document.querySelectorAll("[role=tabpanel]:not([hidden])")]) {
      const copy = part.cloneNode(true);
      for (const control of copy.querySelectorAll("[data-live]")) control.remove();
      for (const button of copy.querySelectorAll("button")) button.replaceWith(button.textContent);
      for (const node of copy.querySelectorAll("details")) node.open = true;
      for (const node of [copy, ...copy.querySelectorAll("[id]")]) node.removeAttribute("id");
      body.append(copy);
    }
    // As text: a style element in any document of this page would be refused by the page's own policy.
    const metas = [{ charset: "utf-8" }, { name: "viewport", content: "width=device-width, initial-scale=1" }, { name: "color-scheme", content: "light dark" }, { "http-equiv": "Content-Security-Policy", content: "default-src 'none'; style-src 'unsafe-inline'" }];
    const head = [...metas.map((meta) => el("meta", meta)), el("title", {}, document.title)].map((node) => node.outerHTML).join("\n");
    body.append(el("p", { class: "small" }, `Snapshot of cascade_sim live, ${new Date().toISOString().slice(0, 10)}: ${location.search || "as it is"}`));
    const own = ".snapshot .layout { grid-template-columns: minmax(0, 1fr); grid-template-areas: 'answer' 'views'; }";
    const file = new Blob([`<!doctype html>\n<html lang="en">\n<head>\n${head}\n<style>\n${style}\n${own}\n</style>\n</head>\n<body class="snapshot">\n`, body.outerHTML, "\n</body>\n</html>\n"], { type: "text/html" });
    const link = el("a", { href: URL.createObjectURL(file), download: `${about.name.replace(/\W+/g, "-")}-snapshot.html` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    $("said").textContent = "The snapshot is saved.";
  });

  // Controls of the head

  $("run").addEventListener("change", () => { state.run = Number($("run").value); state.arm = ""; state.against = ""; state.parameters = new Map(); state.words = []; state.request = null; state.ad = ""; state.find = { ...FIND }; offset = 0; curve.key = ""; for (const name of Object.keys(VIEWS)) $("view-" + name).replaceChildren(); openRun(); });
  $("arm").addEventListener("change", () => { const was = state.arm; state.arm = $("arm").value; if (state.against === was) state.against = state.arm; openRun(); });
  $("against").addEventListener("change", () => { state.against = $("against").value; ask(); });
  $("reset").addEventListener("click", () => { state.parameters = new Map(); state.words = []; drawParameters(); ask(); });
  $("parameters").addEventListener("submit", (event) => event.preventDefault());
  $("other").addEventListener("submit", (event) => {
    event.preventDefault();
    const word = $("word").value.trim();
    if (!word) return;
    state.words = [...state.words.filter((w) => w.split("=")[0] !== word.split("=")[0]), word];
    $("word").value = "";
    drawWords();
    markTurned();
    ask();
  });
  addEventListener("popstate", () => { read(); openRun(); });
  new IntersectionObserver((seen) => { $("mini").hidden = seen[seen.length - 1].isIntersecting; }).observe($("headline"));
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => answer && drawView(false), 120); });

  read();
  open().catch((error) => refuse(error.message));
})();
