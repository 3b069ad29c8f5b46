// SPDX-License-Identifier: Apache-2.0
// The page that --html writes: the list of tensors, and what all of it shares. Names come from files that
// nobody vouches for, so text is only ever set as text. page_overview.js, which follows, has the overview, page_draw.js one tensor.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const ROW = 44;        // pixels, as in the style
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
    return name.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, c => {
        const code = c.codePointAt(0), digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
        return "\\" + (digits === 2 ? "x" : digits === 4 ? "u" : "U") + code.toString(16).padStart(digits, "0");
    });
}

function sizeText(n) {
    const unit = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let u = 0;
    while (n >= 1024 && u + 1 < unit.length) { n /= 1024; u++; }
    return (u ? n.toFixed(1) : n) + " " + unit[u];
}

// As on the terminal: "6.7B", "124.4M", "9999".
function countText(n) {
    const unit = "KMBT";
    let u = 0;
    if (n < 10000) return String(n);
    for (n /= 1000; n >= 999.95 && u + 1 < unit.length; u++) n /= 1000;
    return n.toFixed(1) + unit[u];
}

// Numbers by their value, and what lies below one name together; as name_order.c does.
function natural(a, b) {
    const x = a.split(/(\d+)/), y = b.split(/(\d+)/);
    for (let i = 0; i < x.length && i < y.length; i++) {
        const p = x[i].replace(/\./g, "\0"), q = y[i].replace(/\./g, "\0");
        if (i % 2 && Number(p) !== Number(q)) return Number(p) - Number(q);
        if (p !== q && !(i % 2)) return p < q ? -1 : 1;
    }
    return x.length - y.length || (a < b ? -1 : a > b ? 1 : 0);
}

const plural = (n, word) => n.toLocaleString("en") + " " + word + (n === 1 ? "" : "s");
const hue = holder => (holder * 137.5 + 205) % 360;

// A tensor: [name, dtype, shape, bytes, item bytes, tiling before or -1, tiling after or -1], and of one that a recipe makes
// {from: [[name, dtype, shape], ...], line, parts, tied, reordered, scaled, reads: number of a list among the tilings}
const tensors = data.tensors.map((t, i) => ({
    i, name: t[0], dtype: t[1], shape: t[2], bytes: t[3], item: t[4], count: t[3] / t[4],
    before: t[5] < 0 ? null : data.tilings[t[5]], after: t[6] < 0 ? null : data.tilings[t[6]], made: t[7],
    key: [t[0], t[1], "[" + t[2].join(", ") + "]", ...(t[7] ? t[7].from.map(s => s[0]) : [])].join(" ").toLowerCase()
}));
const unit = data.recipe === undefined ? "chunk" : "part";
const chunks = t => t.made ? t.made.parts : t.before.n;
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
            make("span", { text: plural(chunks(t), unit) }), make("span", { text: sizeText(t.bytes) })));
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
    if (order === "name") found.sort((a, b) => natural(a.name, b.name));
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

// ---- one tensor ----

function open(t) {
    opened = t;
    openTensor(t, $("view"));
    if (narrow()) $("view").scrollIntoView();
    history.replaceState(null, "", "#" + encodeURIComponent(t.name));
}

function openHash() {
    let name = "";
    try { name = decodeURIComponent(location.hash.slice(1)); } catch (e) { return; }
    const k = found.findIndex(t => t.name === name);
    if (name && k >= 0) { choose(k); open(found[k]); }
}

// One column, as on a phone; as in the style.
const narrow = () => window.innerWidth <= 820;

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
    $("summary").textContent = data.format + ", " + plural(tensors.length, "tensor") + ", " +
        countText(tensors.reduce((n, t) => n + t.count, 0)) + " parameters, " + sizeText(bytes) + (data.recipe === undefined ? " in " : " from ") +
        plural(data.files.length, "file") + (plan ? ", to " + plural(data.ranks.filter(r => r[0] > 0).length, "rank") : "") +
        (data.recipe === undefined ? "" : ", made by recipe " + spelled(data.recipe));
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
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
        showRows(true);
        if (opened && width !== window.innerWidth) openTensor(opened, $("view")); // pictures are as wide as their room
        width = window.innerWidth;
    });
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
