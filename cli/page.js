// SPDX-License-Identifier: Apache-2.0
// The page that --html writes: the list of tensors, the overview, and what all of it shares. Names come from files that
// nobody vouches for, so text is only ever set as text. page_draw.js, which follows, opens one tensor.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const ROW = 44;        // pixels, as in the style
const MOST_BARS = 48;  // before "show all"
const plan = data.kind === "plan";
const $ = id => document.getElementById(id);

function make(tag, attributes, ...children) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes || {}))
        if (k === "text") e.textContent = v;
        else if (k === "hue") e.style.setProperty("--h", v);
        else if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
        else e.setAttribute(k, v);
    e.append(...children);
    return e;
}

// As on the terminal: a name may have line ends and worse in it.
function spelled(name) {
    return name.replace(/[\x00-\x1f\x7f-\x9f]/g, c => "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0"));
}

function sizeText(n) {
    const unit = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let u = 0;
    while (n >= 1024 && u + 1 < unit.length) { n /= 1024; u++; }
    return (u ? n.toFixed(1) : n) + " " + unit[u];
}

const plural = (n, word) => n.toLocaleString("en") + " " + word + (n === 1 ? "" : "s");
const hue = holder => (holder * 137.5 + 205) % 360;

// A tensor: [name, dtype, shape, bytes, item bytes, tiling before, tiling after or -1]
const tensors = data.tensors.map((t, i) => ({
    i, name: t[0], dtype: t[1], shape: t[2], bytes: t[3], item: t[4],
    before: data.tilings[t[5]], after: t[6] < 0 ? null : data.tilings[t[6]],
    key: (t[0] + " " + t[1] + " [" + t[2].join(", ") + "]").toLowerCase()
}));
const chunks = t => t.before.n;
const kindText = t => t.dtype + " [" + t.shape.join(", ") + "]";

// ---- the list: only the rows that can be seen exist ----

let found = tensors;
let current = -1; // in `found`
let opened = null;
let shownFrom = -1, shownTo = -1;

function rowFor(k) {
    const t = found[k];
    const row = make("div", { class: "row", role: "option", id: "row-" + k, "aria-selected": k === current,
        "aria-setsize": found.length, "aria-posinset": k + 1 },
        make("span", { class: "name", text: spelled(t.name), title: spelled(t.name) }),
        make("span", { class: "kind" }, make("span", { text: kindText(t) }),
            make("span", { text: plural(chunks(t), "chunk") }), make("span", { text: sizeText(t.bytes) })));
    row.style.top = k * ROW + "px";
    row.addEventListener("click", () => { choose(k); open(found[k]); });
    return row;
}

function showRows(again) {
    const list = $("list");
    const from = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const to = Math.min(found.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4);
    if (!again && from === shownFrom && to === shownTo) return;
    shownFrom = from;
    shownTo = to;
    const rows = [];
    for (let k = from; k < to; k++) rows.push(rowFor(k));
    $("room").replaceChildren(...rows);
    if (current >= from && current < to) list.setAttribute("aria-activedescendant", "row-" + current);
    else list.removeAttribute("aria-activedescendant");
}

function choose(k) {
    const list = $("list");
    current = Math.max(0, Math.min(found.length - 1, k));
    if (current < 0) return;
    if (current * ROW < list.scrollTop) list.scrollTop = current * ROW;
    else if ((current + 1) * ROW > list.scrollTop + list.clientHeight)
        list.scrollTop = (current + 1) * ROW - list.clientHeight;
    showRows(true);
}

function search() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(w => w);
    const order = $("order").value;
    found = tensors.filter(t => words.every(w => t.key.includes(w)));
    if (order === "name") found.sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
    if (order === "size") found.sort((a, b) => b.bytes - a.bytes || a.i - b.i);
    current = opened ? found.indexOf(opened) : -1;
    $("room").style.height = found.length * ROW + "px";
    $("found").textContent = words.length ? found.length.toLocaleString("en") + " of " + plural(tensors.length, "tensor")
                                          : plural(tensors.length, "tensor");
    $("list").scrollTop = 0;
    showRows(true);
}

function listKey(e) {
    const page = Math.max(1, Math.floor($("list").clientHeight / ROW) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[e.key];
    if (e.key === "Enter" || e.key === " ") {
        if (current >= 0) open(found[current]);
    } else if (step === undefined) {
        return;
    } else {
        choose(step === Infinity ? found.length - 1 : step === -Infinity ? 0 : current + step);
    }
    e.preventDefault();
}

// ---- the overview: bytes of each file or rank ----

function bars(title, rows, note) {
    const card = make("div", { class: "card" });
    const fill = all => {
        const most = rows.reduce((m, r) => Math.max(m, r.parts.reduce((s, p) => s + p.bytes, 0)), 0) || 1;
        const grid = make("div", { class: "bars" });
        for (const r of all ? rows : rows.slice(0, MOST_BARS)) {
            const bar = make("div", { class: "bar" });
            for (const p of r.parts) {
                const i = make("i", { class: p.class || "", hue: hue(r.holder), title: p.what + " " + sizeText(p.bytes) });
                i.style.width = 100 * p.bytes / most + "%";
                bar.append(i);
            }
            grid.append(make("span", { class: "who", text: r.name, title: r.name }), bar,
                make("span", { class: "much", text: r.text }));
        }
        card.replaceChildren(grid);
        if (!all && rows.length > MOST_BARS)
            card.append(make("p", {}, make("button", { type: "button", onclick: () => fill(true),
                text: "show all " + rows.length.toLocaleString("en") })));
        if (note) card.append(note);
    };
    fill(false);
    return [make("h3", { text: title }), card];
}

function fileBars() {
    return bars("Bytes in each file", data.files.map((f, i) => ({
        name: f[0], holder: i, text: sizeText(f[2]), parts: [{ bytes: f[2], what: "holds" }]
    })));
}

// A rank: [needs, reads, keeps, sends, receives], the last three -1 if the files don't tell their ranks.
function rankBars() {
    const known = data.ranks.some(r => r[2] >= 0);
    const note = known ? make("ul", { class: "legend" },
        make("li", {}, make("span", { class: "swatch kept" }), "it has already"),
        make("li", {}, make("span", { class: "swatch moved" }), "comes from other ranks, if the old ones still held it")) : null;
    return bars("Bytes on each rank afterwards", data.ranks.map((r, i) => ({
        name: "rank " + i, holder: i,
        text: sizeText(r[0]) + (known ? ", sends " + sizeText(r[3]) : ", reads " + sizeText(r[1])),
        parts: known ? [{ bytes: r[2], what: "keeps", class: "kept" }, { bytes: r[4], what: "receives", class: "moved" }]
                     : [{ bytes: r[0], what: "needs" }]
    })), note);
}

function overview() {
    opened = null;
    const parts = [make("h2", { text: "Overview" }),
        make("p", { class: "meta", text: "Choose a tensor to see who holds which part of it." })];
    if (plan) {
        parts.push(make("h3", { text: "The layout to come" }), make("div", { class: "card" },
            ...data.rules.split("\n").filter(l => l).map(l => make("div", {}, make("code", { text: l })))));
        parts.push(...rankBars());
    }
    parts.push(...fileBars());
    $("view").replaceChildren(...parts);
    $("view").scrollTop = 0;
    showRows(true);
}

// ---- one tensor ----

function open(t) {
    opened = t;
    openTensor(t, $("view"));
    history.replaceState(null, "", "#" + encodeURIComponent(t.name));
}

function openHash() {
    let name = "";
    try { name = decodeURIComponent(location.hash.slice(1)); } catch (e) { return; }
    const k = found.findIndex(t => t.name === name);
    if (name && k >= 0) { choose(k); open(found[k]); }
}

// ---- light and dark ----

function theme(next) {
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    $("theme").textContent = "theme: " + next;
    try { localStorage.setItem("reshard-theme", next); } catch (e) { /* not for files everywhere */ }
}

function start() {
    const bytes = tensors.reduce((s, t) => s + t.bytes, 0);
    document.title = "reshard " + data.path;
    $("path").textContent = data.path;
    $("summary").textContent = data.format + ", " + plural(tensors.length, "tensor") + ", " + sizeText(bytes) + " in " +
        plural(data.files.length, "file") + (plan ? ", to " + plural(data.ranks.filter(r => r[0] > 0).length, "rank") : "");
    let saved = "auto";
    try { saved = localStorage.getItem("reshard-theme") || "auto"; } catch (e) { /* as above */ }
    theme(saved);
    $("theme").addEventListener("click", () => {
        const now = $("theme").textContent.slice(7);
        theme({ auto: "light", light: "dark", dark: "auto" }[now]);
    });
    $("search").addEventListener("input", search);
    $("search").addEventListener("keydown", e => {
        if (e.key !== "ArrowDown" && e.key !== "Enter") return;
        e.preventDefault();
        $("list").focus();
        choose(0);
        if (e.key === "Enter" && found.length) open(found[0]);
    });
    $("order").addEventListener("change", search);
    $("list").addEventListener("scroll", () => showRows(false));
    $("list").addEventListener("keydown", listKey);
    window.addEventListener("resize", () => showRows(true));
    window.addEventListener("hashchange", openHash);
    document.addEventListener("keydown", e => {
        if (e.key === "Escape") {
            overview();
            history.replaceState(null, "", location.pathname + location.search);
        } else if (e.key === "/" && !/INPUT|SELECT/.test(document.activeElement.tagName)) {
            e.preventDefault();
            $("search").focus();
        }
    });
    search();
    overview();
    openHash();
}
