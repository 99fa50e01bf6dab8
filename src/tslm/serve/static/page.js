"use strict";
// Everything that comes from a text is written with textContent: it can never become part of the page.

const $ = (id) => document.getElementById(id);
const models = new Map();
const HOTTEST = 16; // bits of surprise that are coloured fully

function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") element.textContent = value;
    else if (key === "on") for (const [name, listener] of Object.entries(value)) element.addEventListener(name, listener);
    else if (key === "style") for (const [name, setting] of Object.entries(value)) element.style.setProperty(name, setting);
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function complain(message) {
  $("error").textContent = message || "";
  $("error").hidden = !message;
}

async function ask(path, body, signal) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, { ...options, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer; is it still running?");
  }
  if (!response.ok) {
    const answer = await response.json().catch(() => null);
    throw new Error(answer?.error?.message || `the server answered ${response.status}`);
  }
  return response;
}

async function guarded(work) {
  try {
    await work();
    complain("");
  } catch (error) {
    if (error.name !== "AbortError") complain(error.message);
  }
}

// A sentence, coloured

let chosen = 0;
let scoring = null;
let last = [];

function cacheChange(entry) {
  // How surprising the word would be without the cache, for a model that has one.
  return entry.uncached === null ? "" : `${entry.uncached.toFixed(1)} → `;
}

function wordButton(entry, place, total) {
  const bits = entry.surprise === null ? "∞" : entry.surprise.toFixed(1);
  const heat = entry.surprise === null ? 100 : Math.min(100, (entry.surprise / HOTTEST) * 100);
  return make(
    "button",
    {
      type: "button",
      class: entry.unknown ? "word unknown" : "word",
      "aria-pressed": "false",
      "data-place": String(place),
      title: entry.unknown ? "not in the vocabulary: read as <unk>" : `rank ${entry.rank}`,
      style: { "--heat": `${heat}%` },
      on: {
        click: () => choose(place, true),
        keydown: (event) => {
          const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (step === undefined) return;
          event.preventDefault();
          choose(Math.max(0, Math.min(total - 1, place + step)), true);
        },
      },
    },
    document.createTextNode(entry.word),
    make("small", { text: `${cacheChange(entry)}${bits} bits` }),
  );
}

function sentenceRow(report) {
  const words = report.sentences.flatMap((sentence) => sentence.words);
  const perplexity = report.perplexity === null ? "∞" : report.perplexity.toFixed(1);
  return make(
    "div",
    { class: "row", "data-model": report.model },
    make("h3", { text: `${report.model}: perplexity ${perplexity}, ${report.tokens} tokens${report.unknown ? `, ${report.unknown} unknown` : ""}` }),
    make("div", { class: "words" }, ...words.map((entry, place) => wordButton(entry, place, words.length))),
  );
}

async function scoreSentence() {
  scoring?.abort();
  const mine = (scoring = new AbortController());
  const text = $("sentence").value;
  if (!text.trim()) {
    $("scored").replaceChildren();
    $("detail").hidden = true;
    last = [];
    return;
  }
  $("scored").classList.add("busy");
  const names = comparedModels();
  history.replaceState(null, "", linkTo(text, names));
  try {
    const reports = await Promise.all(
      names.map(async (model) => (await ask("/v1/score", { model, text, alternatives: 6, carry: models.get(model)?.cache ?? false }, mine.signal)).json()),
    );
    if (mine.signal.aborted) return;
    last = reports;
    $("scored").replaceChildren(...reports.map(sentenceRow));
    const total = reports[0].sentences.flatMap((sentence) => sentence.words).length;
    choose(Math.min(chosen, total - 1), false);
  } finally {
    if (scoring === mine) $("scored").classList.remove("busy");
  }
}

function choose(place, focus) {
  chosen = place;
  const rows = [...document.querySelectorAll("#scored .row")];
  for (const button of document.querySelectorAll("#scored .word")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.place) === place));
  }
  if (focus) rows[0]?.querySelectorAll(".word")[place]?.focus();
  const parts = last.map((report) => {
    const entry = report.sentences.flatMap((sentence) => sentence.words)[place];
    return entry ? detailOf(report, entry, place) : null;
  });
  $("detail").replaceChildren(...parts.filter(Boolean));
  $("detail").hidden = !parts.some(Boolean);
}

function fact(name, value) {
  return make("span", { text: `${name} ` }, make("b", { text: value }));
}

function bars(entries, onChoose, kind = "bars") {
  const most = Math.max(...entries.map((entry) => entry.probability), 1e-12);
  return make(
    "ul",
    { class: kind },
    ...entries.map((entry) =>
      make(
        "li",
        {},
        make("button", { type: "button", text: entry.word, on: { click: () => onChoose(entry) } }),
        make("div", { class: "bar", style: { "--share": String((entry.probability / most) * 100) } }),
        make("span", { text: entry.probability.toFixed(3) }),
      ),
    ),
  );
}

function detailOf(report, entry, place) {
  return make(
    "div",
    { class: "part" },
    make("h3", { text: `${report.model} on “${entry.word}”${entry.unknown ? ", which it reads as <unk>" : ""}` }),
    make(
      "p",
      { class: "facts" },
      fact("probability", entry.probability < 0.0005 ? entry.probability.toExponential(1) : entry.probability.toFixed(3)),
      fact("rank", entry.rank.toLocaleString("en")),
      fact("surprise", entry.surprise === null ? "∞" : `${entry.surprise.toFixed(1)} bits`),
      ...(entry.uncached === null ? [] : [fact("without the cache", `${entry.uncached.toFixed(1)} bits`)]),
      fact("expected", `${entry.entropy.toFixed(1)} bits`),
    ),
    bars(entry.alternatives, (alternative) => replaceWord(report, place, alternative)),
  );
}

function replaceWord(report, place, alternative) {
  // Places count an <eos> at the end of every line; what is written for each word is the model's own rule.
  const lines = report.sentences.map((sentence) => sentence.words.slice(0, -1).map((entry) => entry.text));
  let rest = place;
  for (const line of lines) {
    if (rest <= line.length) {
      if (alternative.word === "<eos>") line.splice(rest);
      else line[rest] = alternative.text;
      break;
    }
    rest -= line.length + 1;
  }
  $("sentence").value = lines.map((line) => line.join("")).join("\n");
  guarded(scoreSentence);
}

function comparedModels() {
  const others = [...document.querySelectorAll("#others input:checked")].map((box) => box.value);
  return [$("model").value, ...others.filter((name) => name !== $("model").value)];
}

// A link holds the sentence and the models in its fragment, which browsers do not send to any server.

function linkTo(text, names) {
  const parts = new URLSearchParams({ text });
  for (const name of names) parts.append("model", name);
  return `#${parts}`;
}

function followLink() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const [first, ...others] = parts.getAll("model").filter((name) => models.has(name));
  if (first) $("model").value = first;
  for (const box of document.querySelectorAll("#others input")) box.checked = others.includes(box.value);
  const text = parts.get("text");
  if (text) $("sentence").value = text.slice(0, 4000);
  if (text && !$("prompt").value) $("prompt").value = beginning(text);
  return Boolean(text);
}

async function share() {
  history.replaceState(null, "", linkTo($("sentence").value, comparedModels()));
  try {
    await navigator.clipboard.writeText(location.href);
    $("shared").textContent = "copied";
  } catch {
    $("shared").textContent = location.href; // where the page may not write to the clipboard
  }
}

// What one begins with is a sentence of the model's own text, until one has typed another.

let shown = null;

function beginning(text) {
  return text.trim().split(/\s+/).slice(0, 3).join(" ");
}

function showExample() {
  const example = models.get($("model").value)?.example ?? "";
  if ($("sentence").value !== (shown ?? "")) return;
  shown = example;
  $("sentence").value = example;
  $("prompt").value = beginning(example);
}

// Why?

const LONG = 12; // words from which a table has narrow columns: names upright, one decimal

function signed(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : value > 0 ? `+${text}` : text;
}

function effectTable(words, matrix, name) {
  const dense = words.length > LONG;
  const most = Math.max(1e-9, ...matrix.flat().map((value) => Math.abs(value ?? 0)));
  const head = make("tr", {}, make("th"), ...words.slice(1).map((word) => make("th", { text: word, scope: "col" })));
  const rows = words.slice(0, -1).map((word, row) =>
    make(
      "tr",
      {},
      make("th", { text: word, scope: "row" }),
      ...words.slice(1).map((_, place) => {
        const value = matrix[row][place + 1];
        if (place + 1 <= row) return make("td");
        const heat = value === null ? 100 : Math.min(80, (Math.abs(value) / most) * 80);
        const tint = value !== null && value < 0 ? "var(--cold)" : "var(--hot)";
        const text = value === null ? "∞" : signed(value, dense ? 1 : 2);
        return make("td", { class: "heat", text, style: { "--heat": `${heat}%`, "--tint": tint } });
      }),
    ),
  );
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, make("table", { id: name, class: dense ? "dense" : "" }, head, ...rows));
}

function chainTable(words, report) {
  const row = (name, values, digits) =>
    make("tr", {}, make("th", { text: name, scope: "row" }), ...values.map((value) => make("td", { text: value.toFixed(digits) })));
  const head = make("tr", {}, make("th"), ...words.slice(0, -1).map((word) => make("th", { text: word, scope: "col" })));
  const rows = [head];
  if (report.state_norms) rows.push(row("norm of the state", report.state_norms, 1));
  if (report.cuts) rows.push(row("effective rank of the cut behind it", report.cuts.ranks, 1));
  if (report.cuts && report.cuts.information) rows.push(row("bits that both sides of the cut say of each other", report.cuts.information, 2));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "states" }, make("table", { class: words.length > LONG ? "chain dense" : "chain" }, ...rows));
}

function statesTable(words, states) {
  const names = ["word", "state", "p", "emits", "shares its states with"];
  const head = make("tr", {}, ...names.map((name) => make("th", { text: name, scope: "col" })));
  const rows = states.flatMap((report, place) =>
    report.states.map((state, number) =>
      make(
        "tr",
        {},
        make("th", { text: number ? "" : words[place], scope: "row" }),
        make("td", { text: String(state.number) }),
        make("td", { text: state.probability.toFixed(3) }),
        make("td", { text: state.words.map((entry) => `${entry.word} ${entry.probability.toFixed(2)}`).join("  ") }),
        make("td", { text: number ? "" : report.cluster_words.filter((word) => word !== words[place]).join(", ") }),
      ),
    ),
  );
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "hidden states" }, make("table", { id: "states" }, head, ...rows));
}

async function explainSentence() {
  const text = $("sentence").value.replace(/\s+/g, " ").trim();
  $("explain").disabled = true;
  try {
    const report = await (await ask("/v1/explain", { model: $("model").value, text, alternatives: 0, network: true })).json();
    const words = report.words.map((entry) => entry.word);
    const parts = [];
    if (report.effects) {
      parts.push(make("h3", { text: "effect of the word on the left on the word above, in nats" }), effectTable(words, report.effects.matrix, "effects"), make("p", { class: "hint", text: report.effects.method }));
    } else {
      parts.push(make("p", { class: "hint", text: "This model has no <unk> to put in a word's place, so effects cannot be found." }));
    }
    if (report.contributions) {
      // The beginning of the text is one more word before them.
      const shares = report.contributions.matrix.map((row) => [0, ...row]);
      parts.push(make("h3", { text: "what the word on the left adds to the logit of the word above" }), effectTable(["(start)", ...words], shares, "contributions"), make("p", { class: "hint", text: report.contributions.method }));
    }
    if (report.state_norms || report.cuts) parts.push(chainTable(words, report));
    if (report.cuts) parts.push(make("p", { class: "hint", text: `effective rank: ${report.cuts.method}` }));
    if (report.states) {
      parts.push(make("h3", { text: "hidden states of each word, given the whole sentence" }), statesTable(words, report.states));
    }
    if (report.network) {
      const picture = make("img", { class: "network", id: "network", alt: `tensor network of “${text}”` });
      // It shrinks to fit, as far as it can still be read; a longer one is scrolled.
      picture.addEventListener("load", () => picture.style.setProperty("min-width", `${0.6 * picture.naturalWidth}px`));
      pictures.set(picture, report.network);
      paint(picture);
      parts.push(make("h3", { text: "the tensor network of this sentence" }), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "tensor network" }, picture), saveButtons(picture));
    } else if (models.get($("model").value)?.network) {
      parts.push(make("p", { class: "hint", text: "The tensor network of so long a sentence is not drawn: take a shorter one." }));
    }
    $("explained").replaceChildren(make("div", { class: "part" }, ...parts));
  } finally {
    $("explain").disabled = false;
  }
}

// Go on

let generating = null;

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) yield JSON.parse(part.replace(/^data: /, ""));
  }
}

async function generate() {
  generating?.abort();
  const mine = (generating = new AbortController());
  const number = (id) => Number($(id).value);
  const body = {
    model: $("model").value, prompt: $("prompt").value, temperature: number("temperature"), top_k: number("top_k"),
    top_p: number("top_p"), length: number("length"), number: number("number"), seed: number("seed"), unk: $("unk").checked, stream: true,
  };
  const texts = Array.from({ length: body.number }, () => document.createTextNode(""));
  $("samples").replaceChildren(...texts.map((text) => make("li", {}, make("span", { class: "given", text: body.prompt }), text)));
  $("stop").disabled = false;
  $("samples").dataset.done = "no";
  try {
    for await (const event of events(await ask("/v1/generate", body, mine.signal))) {
      if (event.error) throw new Error(event.error.message);
      if (!event.done) texts[event.sample].data += event.text;
    }
  } finally {
    if (generating === mine) {
      $("stop").disabled = true;
      $("samples").dataset.done = "yes";
    }
  }
}

// Fill the blanks

// A word that is chosen for one blank stays; the others are filled again, knowing it.
function putWord(pattern, blank, word) {
  let seen = 0;
  $("pattern").value = pattern.replace(/(?<![^\s\p{P}])(?<!\\)\?/gu, (sign) => (seen++ === blank ? (word === "?" ? "\\?" : word) : sign));
  guarded(fillBlanks);
}

async function fillBlanks() {
  const pattern = $("pattern").value;
  const report = await (await ask("/v1/fill", { model: $("model").value, pattern, top: 6 })).json();
  if (report.log_probability === null) {
    $("filled").replaceChildren(make("p", { text: "Impossible: no filling has a probability above zero." }));
    return;
  }
  const use = (entry) => {
    $("sentence").value = entry.word;
    guarded(scoreSentence);
  };
  const whole = report.fillings.map((entry) => ({ word: entry.text, probability: entry.probability }));
  const parts = report.blanks.map((blank, place) => make("div", {}, make("h3", { text: `blank ${place + 1}` }), bars(blank.best, (entry) => putWord(pattern, place, entry.word))));
  if (report.blanks.length > 1) parts.push(make("div", {}, make("h3", { text: "all together" }), bars(whole, use, "bars texts")));
  $("filled").replaceChildren(make("p", { class: "hint", text: `ln p = ${report.log_probability.toFixed(2)}, summed over all fillings` }), make("div", { class: "fillings part" }, ...parts));
}

function showAbilities() {
  const fills = models.get($("model").value)?.fills ?? false;
  for (const element of $("fill").elements) element.disabled = !fills;
  $("cannot").hidden = fills;
  if (!fills) $("filled").replaceChildren();
  for (const label of $("others").children) label.hidden = label.firstChild.value === $("model").value;
}

// Starting

function remembered(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(key);
    localStorage.setItem(key, value);
  } catch {
    return null; // private windows may refuse; the page works without
  }
  return value;
}

async function start() {
  const theme = remembered("tslm-theme");
  if (theme) document.documentElement.dataset.theme = theme;
  $("theme").addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    document.documentElement.dataset.theme = remembered("tslm-theme", dark === "dark" ? "light" : "dark") ?? "light";
    paintAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
  const list = await (await ask("/v1/models")).json();
  for (const card of list.data) {
    models.set(card.id, card);
    const label = `${card.id} (${card.kind})`;
    $("model").append(make("option", { value: card.id, text: label }));
    $("others").append(make("label", {}, make("input", { type: "checkbox", value: card.id, on: { change: () => guarded(scoreSentence) } }), document.createTextNode(label)));
  }
  $("beside").hidden = list.data.length < 2;
  let timer = 0;
  $("sentence").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => guarded(scoreSentence), 250);
  });
  $("sentence").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) guarded(explainSentence);
  });
  $("model").addEventListener("change", () => {
    showAbilities();
    showExample();
    $("explained").replaceChildren();
    guarded(scoreSentence);
  });
  $("share").addEventListener("click", () => guarded(share));
  addEventListener("hashchange", () => {
    followLink();
    showAbilities();
    guarded(scoreSentence);
  });
  $("explain").addEventListener("click", () => guarded(explainSentence));
  $("generate").addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(generate);
  });
  $("stop").addEventListener("click", () => generating?.abort());
  $("fill").addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(fillBlanks);
  });
  if (!followLink()) showExample();
  showAbilities();
  await scoreSentence();
  document.body.dataset.ready = "yes";
}

guarded(start);
