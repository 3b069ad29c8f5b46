// SPDX-License-Identifier: Apache-2.0
// One tensor on the page: its tiles before and, of a plan, after, and the moves between them; or what it is made of. A tile is
// [holder, offsets, lengths] in the tiling's flat list; boxes that several hold are one tile with several holders.
"use strict";

const MOST_LEGEND = 24;    // holders
const MOST_LEGEND_NARROW = 6;
const MOST_LINES = 160;    // moves drawn while no tile is chosen: of more, evenly picked ones
const THIN_LINES = 40;     // more of them are drawn thin
const MOST_PAIRS = 4e6;    // tiles before times tiles after
const MOST_ROWS = 200;     // of the table of moves
const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, text) {
    const e = document.createElementNS(SVG, tag);
    for (const [k, v] of Object.entries(attributes))
        if (k === "hue") e.style.setProperty("--h", v);
        else e.setAttribute(k, v);
    if (text !== undefined) e.textContent = text;
    return e;
}

function tilesOf(tiling, ndim) {
    const flat = tiling.t, step = 1 + 2 * ndim, byBox = new Map();
    for (let at = 0; at < flat.length; at += step) {
        const off = flat.slice(at + 1, at + 1 + ndim), len = flat.slice(at + 1 + ndim, at + step);
        const key = off.join() + ":" + len.join();
        const there = byBox.get(key);
        if (there) there.holders.push(flat[at]);
        else if (len.every(n => n > 0)) byBox.set(key, { off, len, holders: [flat[at]] });
    }
    return [...byBox.values()];
}

const boxText = b => "[" + b.off.map((o, d) => o + ":" + (o + b.len[d])).join(", ") + "]";
const count = b => b.len.reduce((n, x) => n * x, 1);

function intersect(a, b) {
    const off = [], len = [];
    for (let d = 0; d < a.off.length; d++) {
        const lo = Math.max(a.off[d], b.off[d]);
        const hi = Math.min(a.off[d] + a.len[d], b.off[d] + b.len[d]);
        if (hi <= lo) return null;
        off.push(lo);
        len.push(hi - lo);
    }
    return { off, len };
}

const fileRank = f => data.files[f][1];
const fileName = f => fileRank(f) >= 0 ? "rank " + fileRank(f) + " (" + data.files[f][0] + ")" : data.files[f][0];
const fileShort = f => String(fileRank(f) >= 0 ? fileRank(f) : f);
const fileHue = f => hue(fileRank(f) >= 0 ? fileRank(f) : f);

function holdersText(side, tile) {
    if (!side.after) return tile.holders.map(fileName).join(", ");
    const ranks = tile.holders;
    return ranks.length === 1 ? "rank " + ranks[0]
        : ranks.length <= 8 ? "ranks " + ranks.join(", ")
        : "ranks " + ranks.slice(0, 7).join(", ") + " and " + (ranks.length - 7) + " more";
}

// What goes from the tiles of `from` to those of `to`: all of it, or only to and from one tile.
function movesOf(state, only) {
    const moves = [];
    const from = only && !only.side.after ? [only.tile] : state.before.tiles;
    const to = only && only.side.after ? [only.tile] : state.after.tiles;
    if (from.length * to.length > MOST_PAIRS) return null;
    for (const b of to)
        for (const a of from) {
            const box = intersect(a, b);
            if (!box) continue;
            const rank = fileRank(a.holders[0]);
            moves.push({ a, b, box, stays: b.holders.length === 1 && rank === b.holders[0] });
        }
    return moves;
}

// ---- axes ----

function cutParts(tiles, d) {
    return new Set(tiles.map(t => t.off[d])).size;
}

// Two that are cut, or else the longest ones; as draw.c chooses them.
function bestAxes(t, sides) {
    const worth = t.shape.map((n, d) => [sides.some(s => cutParts(s.tiles, d) > 1) ? 1 : 0, n, d]);
    worth.sort((x, y) => y[0] - x[0] || y[1] - x[1] || x[2] - y[2]);
    return worth.slice(0, 2).map(w => w[2]).sort((x, y) => x - y);
}

function axisTools(state, again) {
    const t = state.t, box = make("div", { class: "axes" });
    const pick = (label, k) => {
        const s = make("select", { id: "axis-" + k, "aria-label": label });
        t.shape.forEach((n, d) => s.append(make("option", { value: d, text: "axis " + d + " (" + n + ")" })));
        s.value = state.axes[k];
        s.addEventListener("change", () => {
            const d = Number(s.value);
            if (state.axes[1 - k] === d) state.axes[1 - k] = state.axes[k];
            state.axes[k] = d;
            again();
        });
        return make("label", {}, label + " ", s);
    };
    if (t.shape.length > 2) box.append(pick("down", 0), pick("across", 1));
    t.shape.forEach((n, d) => {
        if (t.shape.length <= 2 || state.axes.includes(d)) return;
        const parts = Math.max(...state.sides.map(s => cutParts(s.tiles, d)));
        const input = make("input", { type: "number", id: "at-" + d, min: 0, max: n - 1, value: state.at[d], "aria-label": "index on axis " + d });
        input.addEventListener("change", () => {
            state.at[d] = Math.max(0, Math.min(n - 1, Math.floor(Number(input.value)) || 0));
            again();
        });
        box.append(make("label", {}, "axis " + d + " at ", input, " of " + n + (parts > 1 ? ", " + parts + " parts" : ", not cut")));
    });
    return box;
}

// ---- the picture ----

function visible(state, box) {
    return box.off.every((o, d) => state.axes.includes(d) || (o <= state.at[d] && state.at[d] < o + box.len[d]));
}

// The place of a box in the picture of one side.
function place(state, side, box) {
    const [r, c] = state.axes.length === 2 ? state.axes : [-1, state.axes.length ? state.axes[0] : -1];
    const shape = state.t.shape;
    const span = (d, size) => d < 0 ? [0, size] : [box.off[d] / shape[d] * size, box.len[d] / shape[d] * size];
    const [y, h] = span(r, side.h), [x, w] = span(c, side.w);
    return { x: side.x + x, y: side.y + y, w, h };
}

function drawSide(state, root, side) {
    const who = side.after ? "target rank" : side.tiles.every(t => fileRank(t.holders[0]) >= 0) ? "rank that wrote it" : "file";
    const label = (side.after ? "after: " : plan ? "before: " : "") + who;
    root.append(svg("text", { x: side.x, y: side.y - 10, class: "soft" }, label));
    side.shown = side.tiles.filter(t => visible(state, t));
    for (const tile of side.shown) {
        const p = place(state, side, tile);
        const holder = tile.holders[0];
        const rect = svg("rect", { class: "tile", x: p.x, y: p.y, width: p.w, height: p.h,
            hue: side.after ? hue(holder) : fileHue(holder) });
        rect.append(svg("title", {}, holdersText(side, tile) + " " + boxText(tile)));
        rect.addEventListener("click", () => select(state, side, tile));
        tile.rect = rect;
        root.append(rect);
        const name = side.after ? tile.holders.slice(0, 4).join(" ") + (tile.holders.length > 4 ? " +" + (tile.holders.length - 4) : "")
                                : fileShort(holder);
        if (p.h >= 15 && p.w >= 8 * name.length + 4)
            root.append(svg("text", { x: p.x + p.w / 2, y: p.y + p.h / 2 + 4, "text-anchor": "middle" }, name));
    }
    root.append(svg("rect", { class: "frame", x: side.x, y: side.y, width: side.w, height: side.h }));
}

// A curve between two pieces. Lines between pieces of one row would lie on each other: the longer, the more it is bent,
// away from the middle, as far as it stays inside the picture; its middle is 3/4 of the bend away.
function curve(state, p, q) {
    const side = state.before, from = [p.x + p.w / 2, p.y + p.h / 2], to = [q.x + q.w / 2, q.y + q.h / 2];
    const along = state.stacked ? 1 : 0, across = 1 - along;
    const start = [side.x, side.y][across], size = [side.w, side.h];
    const back = from[across] + to[across] < 2 * start + size[across];
    const room = back ? Math.min(from[across], to[across]) - start : start + size[across] - Math.max(from[across], to[across]);
    const bend = Math.max(0, Math.min(0.16 * Math.abs(to[along] - from[along] - size[along] / 2), 4 / 3 * room));
    const mid = (from[along] + to[along]) / 2;
    const point = at => along ? `${at[across] + (back ? -bend : bend)} ${mid}` : `${mid} ${at[across] + (back ? -bend : bend)}`;
    return `M${from.join(" ")}C${point(from)} ${point(to)} ${to.join(" ")}`;
}

function drawMoves(state) {
    const moves = state.chosen ? movesOf(state, state.chosen) : state.moves || evenMoves(state);
    const seen = moves.filter(m => visible(state, m.box)), every = Math.ceil(seen.length / (state.stacked ? MOST_LINES / 2 : MOST_LINES));
    const lines = seen.filter((m, i) => i % every === 0);
    state.lines.replaceChildren();
    state.lines.classList.toggle("thin", lines.length > THIN_LINES);
    for (const m of lines) {
        const p = place(state, state.before, m.box), q = place(state, state.after, m.box);
        const line = svg("path", { class: m.stays ? "move stay" : "move", hue: fileHue(m.a.holders[0]), d: curve(state, p, q) });
        if (!m.stays) line.setAttribute("marker-end", "url(#head)");
        state.lines.append(line);
        if (state.chosen)
            for (const r of [p, q])
                state.lines.append(svg("rect", { class: "piece", x: r.x, y: r.y, width: r.w, height: r.h }));
    }
    state.drawn.textContent = every > 1 || !state.moves ? "Only some of the moves are drawn; select a tile to see its own." : "";
}

// Where there are too many tiles to look at all pairs: the moves to some of the tiles.
function evenMoves(state) {
    const every = Math.ceil(state.after.tiles.length / 64), out = [];
    for (let i = 0; i < state.after.tiles.length; i += every) {
        const all = movesOf(state, { side: state.after, tile: state.after.tiles[i] }) || [];
        out.push(...all.slice(0, 4));
    }
    return out;
}

function select(state, side, tile) {
    const same = state.chosen && state.chosen.tile === tile;
    state.chosen = same ? null : { side, tile };
    for (const s of state.sides)
        for (const t of s.shown) {
            t.rect.classList.toggle("on", !same && t === tile);
            t.rect.classList.toggle("off", !same && s === side && t !== tile);
        }
    state.status.textContent = same ? "" : holdersText(side, tile) + ": " + boxText(tile) + ", " +
        sizeText(count(tile) * state.t.item);
    if (state.both) {
        drawMoves(state);
        fillTable(state);
    }
}

function pictureKey(state, e) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    const all = state.sides.flatMap(s => s.shown.map(tile => ({ side: s, tile })));
    if (!step || !all.length) return;
    const now = state.chosen ? all.findIndex(x => x.tile === state.chosen.tile) : step > 0 ? -1 : 0;
    const next = all[(now + step + all.length) % all.length];
    e.preventDefault();
    select(state, next.side, next.tile);
}

// Width and height of one side: the tensor's own proportions as far as they can be seen. Where there is room for one side
// only, as on a phone, `after` stands below `before`.
function sizeSides(state) {
    const shape = state.t.shape, two = state.axes.length === 2, space = $("view").clientWidth - 84;
    state.stacked = state.both && space < 560;
    const w = space < 560 ? Math.max(200, space) : state.both ? 360 : 620, gap = state.stacked ? 90 : 180;
    const ratio = two ? shape[state.axes[0]] / shape[state.axes[1]] || 1 : 0.12;
    const h = Math.min(state.stacked ? w : state.both ? 420 : 460, Math.max(two ? w * 0.3 : 60, w * ratio));
    const thin = two && ratio > 1.6 && !state.stacked ? Math.max(w * 0.45, h / ratio) : w;
    state.sides.forEach((s, k) => Object.assign(s, state.stacked ? { x: 1, y: 24 + k * (h + gap), w: thin, h }
                                                                : { x: k * (w + gap) + (k ? w - thin : 0) + 1, y: 24, w: thin, h }));
    if (state.stacked) return { width: w + 2, height: 2 * h + gap + 48 };
    return { width: state.both ? 2 * w + gap + 2 : w + 2, height: h + 48 };
}

function picture(state) {
    const size = sizeSides(state);
    const root = svg("svg", { class: "picture", viewBox: `0 0 ${size.width} ${size.height}`, tabindex: 0, role: "img",
        "aria-label": "Tiles of " + spelled(state.t.name) + "; arrow keys move between tiles" });
    const defs = svg("defs", {});
    const head = svg("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" });
    head.append(svg("path", { d: "M0 0L8 4L0 8z", fill: "context-stroke" }));
    defs.append(head);
    root.append(defs);
    root.style.maxWidth = size.width * 1.15 + "px";
    for (const s of state.sides) drawSide(state, root, s);
    if (state.axes.length)
        root.append(svg("text", { x: 1, y: size.height - 6, class: "soft" },
            state.axes.length === 2 ? `axis ${state.axes[0]} goes down, axis ${state.axes[1]} across` : `axis ${state.axes[0]} goes across`));
    state.lines = svg("g", { class: "lines" });
    root.append(state.lines);
    root.addEventListener("keydown", e => pictureKey(state, e));
    return root;
}

// ---- around it ----

function legend(state) {
    const list = make("ul", { class: "legend" }), files = state.before ? [...new Set(state.before.tiles.flatMap(t => t.holders))] : [];
    const most = narrow() ? MOST_LEGEND_NARROW : MOST_LEGEND;
    for (const f of files.slice(0, most))
        list.append(make("li", {}, make("span", { class: "swatch", hue: fileHue(f) }), fileName(f)));
    if (files.length > most) list.append(make("li", { text: "and " + plural(files.length - most, "more file") }));
    if (state.both)
        list.append(make("li", {}, make("span", { class: "line-key" }), "moves, in the colour of its source"),
            make("li", {}, make("span", { class: "line-key stay" }), "already local"));
    return list;
}

function fillTable(state) {
    const moves = state.chosen ? movesOf(state, state.chosen) : state.moves;
    const title = state.chosen ? "Pieces of the selected tile" : "Pieces";
    state.table.replaceChildren();
    if (!moves) {
        state.table.append(make("p", { class: "note", text: "Too many pieces to list; select a tile." }));
        return;
    }
    const body = make("tbody", {});
    for (const m of moves.slice(0, MOST_ROWS))
        body.append(make("tr", {}, make("td", { text: m.a.holders.map(fileName).join(", ") }), make("td", {}, make("code", { text: boxText(m.box) })),
            make("td", { text: holdersText(state.after, m.b) + (m.stays ? ", already local" : "") }),
            make("td", { class: "num", text: sizeText(count(m.box) * state.t.item) })));
    state.table.append(make("h3", { text: title + " (" + moves.length.toLocaleString("en") + ")" }),
        make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, make("th", { text: "from" }), make("th", { text: "box" }),
            make("th", { text: "to" }), make("th", { class: "num", text: "bytes" }))), body)));
    if (moves.length > MOST_ROWS)
        state.table.append(make("p", { class: "note", text: plural(moves.length - MOST_ROWS, "more piece") + "; select a tile to see its own." }));
}

// A title that starts with ">" is one of numbers.
function plainTable(titles, rows, more) {
    const cells = (tag, texts) => make("tr", {}, ...texts.map((text, k) => make(tag, { text, class: titles[k].startsWith(">") ? "num" : "" })));
    const out = [make("div", { class: "scroll" }, make("table", {}, make("thead", {}, cells("th", titles.map(t => t.replace(/^>/, "")))),
        make("tbody", {}, ...rows.slice(0, MOST_ROWS).map(r => cells("td", r)))))];
    if (rows.length > MOST_ROWS) out.push(make("p", { class: "note", text: "and " + plural(rows.length - MOST_ROWS, "more " + more) }));
    return out;
}

function madeOf(made) {
    const how = ["tied", "reordered", "scaled"].filter(k => made[k]).map(k => ", " + k).join("");
    const from = made.from.map(([name, dtype, shape]) => [spelled(name), dtype + " [" + shape.join(", ") + "]"]);
    return make("div", { class: "made" }, make("h3", { text: "Made of " + (from.length ? plural(from.length, "tensor") : "constants") }),
        make("p", { class: "note", text: "by the rule in line " + made.line + " of " + spelled(data.recipe) + how }),
        ...(from.length ? plainTable(["tensor", "dtype and shape"], from, "tensor") : []));
}

function readsOf(made) {
    const rows = data.tilings[made.reads].map(r => ["rank " + r.rank, sizeText(r.needs), sizeText(r.reads), r.pieces.toLocaleString("en")]);
    return make("div", { class: "reads" }, make("h3", { text: "Read by each rank" }),
        ...plainTable(["rank", ">needs", ">reads", ">in pieces"], rows, "rank"));
}

function notes(state) {
    const out = [];
    for (const s of state.sides) {
        const tiling = s.after ? state.t.after : state.t.before, kept = tiling.t.length / (1 + 2 * state.t.shape.length);
        if (kept < tiling.n)
            out.push(make("p", { class: "note", text: "The first " + kept.toLocaleString("en") + " of " + tiling.n.toLocaleString("en") + " boxes are drawn." }));
    }
    return out;
}

function openTensor(t, view) {
    const ndim = t.shape.length;
    const state = { t, at: t.shape.map(() => 0), chosen: null, before: null, after: null, both: t.before && t.after, moves: null };
    if (t.before) state.before = { tiles: tilesOf(t.before, ndim) };
    if (t.after) state.after = { after: true, tiles: tilesOf(t.after, ndim) };
    state.sides = [state.before, state.after].filter(s => s);
    state.axes = bestAxes(t, state.sides);
    if (state.both) state.moves = movesOf(state, null);
    const card = make("div", { class: "card" });
    state.status = make("p", { class: "status", role: "status" });
    state.table = make("div", {});
    state.drawn = make("p", { class: "note" });
    const again = () => {
        const focused = document.activeElement && document.activeElement.id;
        state.chosen = null;
        state.status.textContent = "";
        card.replaceChildren(axisTools(state, again), picture(state), state.status, legend(state), state.drawn, ...notes(state));
        if (state.both) {
            drawMoves(state);
            fillTable(state);
        }
        if (/^(axis|at)-/.test(focused) && $(focused)) $(focused).focus(); // what was used was made anew
    };
    again();
    view.replaceChildren(make("h2", {}, make("code", { text: spelled(t.name) })),
        make("p", { class: "meta", text: kindText(t) + ", " + sizeText(t.bytes) + ", " + plural(chunks(t), unit) }),
        ...(t.made ? [madeOf(t.made), make("h3", { text: "Tiles" })] : []), card, ...(t.made ? [readsOf(t.made)] : []), state.table,
        make("p", {}, make("button", { type: "button", onclick: overview, text: "back to the overview" })));
    view.scrollTop = 0;
}

start();
