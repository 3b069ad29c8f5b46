// SPDX-License-Identifier: Apache-2.0
// The overview of the page: what the checkpoint is made of, its tree, its objects, and the bytes of each file and rank.
"use strict";

const MOST_BARS = narrow() ? 16 : 48; // before "show all"
const MOST_LARGEST = 8;
const MOST_BRANCHES = 100; // of one node of the tree
const MOST_OBJECTS = 24;

// ---- bytes as bars ----

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
            grid.append(make("span", { class: "who", text: spelled(r.name), title: spelled(r.name) }), bar,
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
        make("li", {}, make("span", { class: "swatch kept" }), "already local"),
        make("li", {}, make("span", { class: "swatch moved" }), "received from other ranks, if the old ranks still hold it")) : null;
    return bars("Bytes on each rank afterwards", data.ranks.map((r, i) => ({
        name: "rank " + i, holder: i,
        text: sizeText(r[0]) + (known ? ", sends " + sizeText(r[3]) : ", reads " + sizeText(r[1])),
        parts: known ? [{ bytes: r[2], what: "keeps", class: "kept" }, { bytes: r[4], what: "receives", class: "moved" }]
                     : [{ bytes: r[0], what: "needs" }]
    })), note);
}

// Dtypes, by bytes.
function dtypeBars() {
    const kinds = new Map();
    for (const t of tensors) {
        const k = kinds.get(t.dtype) || { bytes: 0, count: 0, n: 0 };
        kinds.set(t.dtype, { bytes: k.bytes + t.bytes, count: k.count + t.count, n: k.n + 1 });
    }
    return bars("Dtypes", [...kinds].sort((a, b) => b[1].bytes - a[1].bytes).map(([dtype, k], i) => ({
        name: dtype, holder: i, parts: [{ bytes: k.bytes, what: dtype }],
        text: plural(k.n, "tensor") + ", " + countText(k.count) + " parameters, " + sizeText(k.bytes)
    })));
}

// ---- the largest tensors ----

const opener = t => make("button", { type: "button", class: "link", text: spelled(t.name), onclick: () => open(t) });

function largest() {
    const top = [...tensors].sort((a, b) => b.bytes - a.bytes || a.i - b.i).slice(0, MOST_LARGEST);
    const body = make("tbody", {}, ...top.map(t => make("tr", {}, make("td", {}, opener(t)), make("td", { text: kindText(t) }),
        make("td", { class: "num", text: sizeText(t.bytes) }))));
    return [make("h3", { text: "Largest tensors" }), make("div", { class: "card scroll" }, make("table", { class: "plain" }, body))];
}

// ---- the tree: a level is made when it is opened ----

// The branches behind `skip` characters of sorted names; the names of a branch go on at its `next`.
function branches(items, skip) {
    const out = [];
    for (const t of items) {
        const dot = t.name.indexOf(".", skip), leaf = dot < 0;
        const part = t.name.slice(skip, leaf ? undefined : dot), last = out[out.length - 1];
        if (!leaf && last && !last.leaf && last.part === part) last.items.push(t);
        else out.push({ part, leaf, items: [t], next: dot + 1 });
    }
    return out;
}

// What a branch holds, without its own name.
const likeness = b => b.items.map(t => (b.leaf ? "" : t.name.slice(b.next)) + " " + kindText(t)).join("\n");

// Neighbours such as layers 0 and 1 that hold the same become one, with a first and a last number.
function fold(list) {
    const out = [];
    for (const b of list) {
        const last = out[out.length - 1], number = /^\d+$/.test(b.part) ? Number(b.part) : NaN;
        const like = isNaN(number) ? null : likeness(b);
        if (last && number === last.to + 1 && like === last.like) {
            last.to = number;
            last.all.push(...b.items);
        } else {
            out.push({ ...b, from: number, to: number, like, all: [...b.items] });
        }
    }
    return out;
}

function sums(items) {
    return plural(items.length, "tensor") + ", " + countText(items.reduce((n, t) => n + t.count, 0)) + " parameters, " +
        sizeText(items.reduce((n, t) => n + t.bytes, 0));
}

function leafRow(t, skip) {
    return make("div", { class: "leaf" }, make("button", { type: "button", class: "link", text: spelled(t.name.slice(skip)), onclick: () => open(t) }),
        make("span", { class: "soft", text: kindText(t) + ", " + sizeText(t.bytes) }));
}

function branchRow(b, skip) {
    let label = spelled(b.part), next = b.next;
    const many = b.to > b.from;
    if (!many && b.items.length === 1) return leafRow(b.items[0], skip);
    if (many) label = "[" + b.from + "-" + b.to + "]";
    for (let inner; !many && (inner = branches(b.items, next)).length === 1; next = inner[0].next)
        label += "." + spelled(inner[0].part); // parts that lead to one branch only
    const box = make("details", {}, make("summary", {}, make("code", { text: label }), make("span", { class: "soft", text: sums(b.all) })));
    box.addEventListener("toggle", () => {
        if (!box.open || box.children.length > 1) return;
        const inside = make("div", { class: "branch" });
        if (b.leaf) inside.append(...b.all.slice(0, MOST_BRANCHES).map(t => leafRow(t, skip)));
        else fillTree(inside, b.items, next);
        box.append(inside);
    });
    return box;
}

function fillTree(into, items, skip) {
    const list = fold(branches(items, skip));
    const show = from => {
        const left = list.length - from - MOST_BRANCHES;
        into.append(...list.slice(from, from + MOST_BRANCHES).map(b => branchRow(b, skip)));
        if (left <= 0) return;
        const more = make("button", { type: "button", text: left.toLocaleString("en") + " more",
            onclick: () => { more.remove(); show(from + MOST_BRANCHES); } });
        into.append(more);
    };
    show(0);
}

function tree() {
    const card = make("div", { class: "card tree" });
    fillTree(card, [...tensors].sort((a, b) => natural(a.name, b.name)), 0);
    for (const top of card.querySelectorAll(":scope > details")) top.open = card.children.length <= 4;
    return [make("h3", { text: "Tree" }), card];
}

// ---- objects ----

function objects() {
    const card = make("div", { class: "card scroll" });
    const fill = most => {
        const rows = data.objects.slice(0, most).map(o => make("tr", {}, make("td", {}, make("code", { text: spelled(o[0]) })),
            make("td", {}, make("code", { class: "value", text: spelled(o[1]) }))));
        card.replaceChildren(make("table", { class: "plain" }, make("tbody", {}, ...rows)));
        if (data.objects.length > most)
            card.append(make("p", {}, make("button", { type: "button", onclick: () => fill(Infinity),
                text: "show all " + data.objects.length.toLocaleString("en") })));
    };
    fill(MOST_OBJECTS);
    return [make("h3", { text: "Objects" }), card];
}

// ---- all of it ----

function facts() {
    const all = [[countText(tensors.reduce((n, t) => n + t.count, 0)), "parameters"],
        [sizeText(tensors.reduce((n, t) => n + t.bytes, 0)), "in tensors"], [tensors.length.toLocaleString("en"), "tensors"],
        [tensors.reduce((n, t) => n + chunks(t), 0).toLocaleString("en"), unit + "s"], [data.files.length.toLocaleString("en"), "files"],
        [data.objects.length.toLocaleString("en"), "objects"]];
    return make("dl", { class: "facts" }, ...all.map(([much, what]) => make("div", {}, make("dd", { text: much }), make("dt", { text: what }))));
}

function dropped() {
    const rows = data.dropped.map(([name, line]) => [spelled(name), "line " + line]);
    return [make("h3", { text: "Dropped by the recipe" }), make("div", { class: "card" }, ...plainTable(["tensor", "rule"], rows, "tensor"))];
}

function overview() {
    opened = null;
    const parts = [make("h2", { text: "Overview" }),
        make("p", { class: "meta", text: "Select a tensor to see which rank or file holds which part." }), facts()];
    if (plan) {
        parts.push(make("h3", { text: "Target layout" }), make("div", { class: "card" },
            ...data.rules.split("\n").filter(l => l).map(l => make("div", {}, make("code", { text: l })))));
        parts.push(...rankBars());
    }
    if (tensors.length) parts.push(...dtypeBars(), ...largest(), ...tree());
    if (data.dropped) parts.push(...dropped());
    if (data.objects.length) parts.push(...objects());
    parts.push(...fileBars());
    $("view").replaceChildren(...parts);
    $("view").scrollTop = 0;
    showRows(true);
}
