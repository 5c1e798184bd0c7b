// The lists of the report: sorted, filtered, paged.  Text of documents reaches the page through textContent alone.
"use strict";
(() => {
  const PAGE = { examples: 25, rows: 15 }; // lines of a page, of a list that opens and of others
  const SLICE = 40; // milliseconds that a search may keep the page from answering
  const LONG = { text: 6000, fact: 600, cell: 240 }; // characters shown, of what is in the chunk the rest on demand
  // controls, surrogates without a partner, bidi embeddings, overrides and isolates, invisible spaces
  const HIDDEN = /[\p{Cc}\p{Cs}\u200b\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/gu;
  const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 4 });
  const meta = read("data-meta");
  const chunks = new Map();

  function read(id) {
    return JSON.parse(document.getElementById(id).textContent);
  }

  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  // a string as text, with what a reader could not see written out
  function put(node, string) {
    let from = 0;
    for (const found of string.matchAll(HIDDEN)) {
      const character = found[0];
      const next = string[found.index + 1];
      if (character === "\n" || character === "\t" || (character === "\r" && next === "\n")) continue;
      node.append(string.slice(from, found.index), make("span", { class: "hidden-character" }, code(character)));
      from = found.index + character.length;
    }
    node.append(string.slice(from));
    return node;
  }

  // a name may break behind / _ - and . as people would break it
  function name(node, string) {
    string.split(/(?<=[/_.-])(?=[^/_.-])/u).forEach((piece, at) => {
      if (at) node.append(make("wbr", {}));
      put(node, piece);
    });
    return node;
  }

  function code(character) {
    return "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  }

  function shown(value, kind) {
    if (value === null || value === undefined) return "–";
    if (kind === "share") return value.toFixed(2);
    if (typeof value === "number") return number.format(value);
    return Array.isArray(value) ? value.join(", ") : String(value);
  }

  function short(string) {
    return string.length <= LONG.cell ? string : string.slice(0, LONG.cell) + " …";
  }

  function compare(a, b) {
    const gone = (value) => value === null || value === undefined || value === "";
    if (gone(a) || gone(b)) return gone(a) - gone(b);
    if (typeof a === "number" && typeof b === "number") return a - b;
    return meta.collator.compare(String(a), String(b));
  }
  meta.collator = new Intl.Collator("en", { numeric: true });

  function debounced(run, milliseconds) {
    let timer = 0;
    return (...given) => {
      clearTimeout(timer);
      timer = setTimeout(() => run(...given), milliseconds);
    };
  }

  class List {
    constructor(place) {
      const data = read("data-" + place.dataset.list);
      this.name = place.dataset.list;
      this.place = place;
      this.columns = data.columns;
      this.rows = data.rows.map((cells, at) => ({ cells, at, found: null }));
      this.detail = data.detail; // examples in a chunk, or null
      this.length = this.detail ? PAGE.examples : PAGE.rows;
      this.page = 0;
      this.sorted = data.sorted || null; // [column, "ascending" | "descending"]
      this.filters = new Map();
      this.words = "";
      this.looks = 0; // searches that were begun: one that is not the last stops
      this.open = new Set();
      this.filtered = this.detail || this.rows.length > 8;
      this.build();
      this.refresh();
      if (this.detail) this.prepare();
    }

    build() {
      const controls = make("form", { class: "filters", role: "search", "aria-label": "Filter " + this.name });
      controls.addEventListener("submit", (event) => event.preventDefault());
      this.columns.forEach((column, at) => {
        if (column.filter && this.filtered) controls.append(this.select(column, at));
      });
      if (this.filtered) controls.append(this.search());
      this.count = make("p", { class: "count", role: "status" });
      this.head = make("tr", {});
      this.columns.forEach((column, at) => {
        const button = make("button", { type: "button", class: "sort" }, column.label);
        button.addEventListener("click", () => this.sort(at));
        this.head.append(make("th", { scope: "col", class: column.kind, title: column.title || null }, button));
      });
      this.body = make("tbody", {});
      const table = make("table", { class: "list " + this.name }, make("thead", {}, this.head), this.body);
      this.pager = make("nav", { class: "pager", "aria-label": "Pages of " + this.name });
      this.region = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.name }, table);
      this.place.replaceChildren(...(controls.children.length ? [controls] : []), this.count, this.region, this.pager);
    }

    select(column, at) {
      const counts = new Map();
      for (const row of this.rows) {
        for (const value of [row.cells[at]].flat()) counts.set(value, (counts.get(value) || 0) + 1);
      }
      const select = make("select", { name: column.key }, make("option", { value: "" }, "all"));
      for (const value of [...counts.keys()].sort(compare)) {
        const text = value === null ? "–" : String(value);
        const option = make("option", { value: "=" + text });
        option.append(put(make("span", {}), short(text)).textContent + " (" + number.format(counts.get(value)) + ")");
        select.append(option);
      }
      select.addEventListener("change", () => this.filter(at, select.value));
      this.selects = { ...this.selects, [column.key]: select };
      return make("label", {}, make("span", {}, column.label), select);
    }

    search() {
      const input = make("input", { type: "search", name: "text", autocomplete: "off", spellcheck: "false" });
      input.addEventListener("input", debounced(() => this.look(input.value), 120));
      this.input = input;
      return make("label", { class: "text" }, make("span", {}, this.detail ? "text, id, document" : "text"), input);
    }

    filter(at, value) {
      if (value === "") this.filters.delete(at);
      else this.filters.set(at, value.slice(1));
      this.page = 0;
      this.refresh();
    }

    look(words) {
      this.words = words.trim().toLowerCase();
      this.page = 0;
      this.refresh();
    }

    sort(at) {
      const descending = this.columns[at].kind === "number" || this.columns[at].kind === "share";
      const first = descending ? "descending" : "ascending";
      const other = descending ? "ascending" : "descending";
      this.sorted = [at, this.sorted && this.sorted[0] === at && this.sorted[1] === first ? other : first];
      this.page = 0;
      this.refresh();
    }

    // all that can be found in a row, and in what lies behind it; of a chunk, which is parsed once, in all its rows
    text(row) {
      if (row.found === null) {
        const first = this.detail ? row.at - (row.at % this.detail) : row.at;
        const behind = this.detail ? this.chunk(row) : [null];
        behind.forEach((item, at) => {
          const one = this.rows[first + at];
          const parts = one.cells.flat().map(String);
          collect(item, parts);
          one.found = parts.join("\n").toLowerCase();
        });
      }
      return row.found;
    }

    // while nobody waits for anything, what the first search will read
    prepare() {
      const idle = window.requestIdleCallback || ((run) => setTimeout(() => run({ timeRemaining: () => 0 }), 100));
      let at = 0;
      const some = (deadline) => {
        do {
          if (at >= this.rows.length) return;
          this.text(this.rows[at]);
          at += this.detail;
        } while (deadline.timeRemaining() > SLICE / 2);
        idle(some);
      };
      idle(some);
    }

    // what was opened is kept, what was only searched is not
    chunk(row, keep = false) {
      const key = this.name + "-" + Math.floor(row.at / this.detail);
      const found = chunks.get(key) || read("data-" + key);
      if (keep) chunks.set(key, found);
      return found;
    }

    behind(row) {
      return this.chunk(row, true)[row.at % this.detail];
    }

    refresh() {
      const filters = [...this.filters];
      let rows = this.rows.filter((row) =>
        filters.every(([at, value]) => [row.cells[at]].flat().some((cell) => String(cell ?? "–") === value)),
      );
      if (this.sorted) {
        const [at, direction] = this.sorted;
        const sign = direction === "ascending" ? 1 : -1;
        const rank = this.columns[at].order;
        const value = rank ? (row) => rank.indexOf(row.cells[at]) : (row) => row.cells[at];
        rows.sort((a, b) => sign * compare(value(a), value(b)) || a.at - b.at);
      }
      this.find(rows);
    }

    // rows with the words, a slice of time after the other: the first ones are there at once
    find(rows) {
      const look = (this.looks += 1);
      if (!this.words) {
        this.show(rows, false);
        return;
      }
      const found = [];
      const slice = (first) => {
        if (look !== this.looks) return;
        const until = performance.now() + SLICE;
        let at = first;
        for (; at < rows.length && performance.now() < until; at += 1) {
          if (this.text(rows[at]).includes(this.words)) found.push(rows[at]);
        }
        this.show(found, at < rows.length);
        if (at < rows.length) setTimeout(slice, 0, at);
      };
      slice(0);
    }

    // busy: more may come
    show(rows, busy) {
      this.shown = rows;
      this.region.setAttribute("aria-busy", String(busy));
      this.draw(busy);
    }

    draw(busy = false) {
      const pages = Math.max(1, Math.ceil(this.shown.length / this.length));
      this.page = Math.min(this.page, pages - 1);
      const first = this.page * this.length;
      const rows = this.shown.slice(first, first + this.length);
      const all = this.rows.length === this.shown.length ? "" : ", filtered from " + number.format(this.rows.length);
      const range = pages > 1 ? number.format(first + 1) + "–" + number.format(first + rows.length) + " of " : "";
      const more = busy ? ", looking for more" : "";
      this.count.textContent = this.filtered ? range + number.format(this.shown.length) + (this.shown.length === 1 ? " row" : " rows") + all + more : "";
      [...this.head.children].forEach((cell, at) => {
        if (this.sorted && this.sorted[0] === at) cell.setAttribute("aria-sort", this.sorted[1]);
        else cell.removeAttribute("aria-sort");
      });
      this.body.replaceChildren(...rows.flatMap((row) => this.line(row)));
      if (!rows.length) {
        const none = busy ? "looking" : "nothing matches";
        this.body.append(make("tr", {}, make("td", { colspan: this.columns.length }, none)));
      }
      this.turn(pages);
    }

    turn(pages) {
      this.pager.replaceChildren();
      if (pages < 2) return;
      const step = (label, to, text) => {
        const button = make("button", { type: "button", "aria-label": label, disabled: to < 0 || to >= pages }, text);
        button.addEventListener("click", () => {
          this.page = to;
          this.draw();
          this.place.scrollIntoView({ block: "start" });
        });
        return button;
      };
      const where = make("span", {}, "page " + number.format(this.page + 1) + " of " + number.format(pages));
      this.pager.append(
        step("first page", this.page > 0 ? 0 : -1, "«"),
        step("previous page", this.page - 1, "‹"),
        where,
        step("next page", this.page + 1, "›"),
        step("last page", this.page < pages - 1 ? pages - 1 : -1, "»"),
      );
    }

    line(row) {
      const line = make("tr", {});
      row.cells.forEach((value, at) => line.append(this.cell(row, value, this.columns[at], at)));
      if (!this.detail) return [line];
      line.classList.add("opens");
      if (!this.open.has(row.at)) return [line];
      line.classList.add("is-open");
      const cell = make("td", { colspan: this.columns.length }, evidence(this.behind(row)));
      return [line, make("tr", { class: "behind" }, cell)];
    }

    cell(row, value, column, at) {
      const cell = make("td", { class: column.kind, "data-label": column.label });
      if (this.detail && column.opens) {
        const open = this.open.has(row.at);
        const button = make("button", { type: "button", class: "open", "aria-expanded": String(open) });
        name(button, short(shown(value, column.kind)));
        button.addEventListener("click", () => this.toggle(row));
        cell.append(button);
      } else if (column.kind === "class") {
        cell.append(make("span", { class: "chip c-" + (meta.classes.includes(value) ? value : "other") }), shown(value));
      } else {
        (column.kind === "name" || column.kind === "code" ? name : put)(cell, short(shown(value, column.kind)));
        if (column.kind === "words") cell.setAttribute("dir", "auto");
      }
      return cell;
    }

    toggle(row) {
      if (this.open.has(row.at)) this.open.delete(row.at);
      else this.open.add(row.at);
      this.draw();
      const at = this.shown.slice(this.page * this.length).indexOf(row);
      const lines = [...this.body.children].filter((line) => !line.classList.contains("behind"));
      if (lines[at]) lines[at].querySelector("button").focus();
    }

    choose(wanted) {
      for (const [key, select] of Object.entries(this.selects || {})) {
        const value = wanted[key] ? "=" + wanted[key] : "";
        select.value = value;
        this.filter(this.columns.findIndex((column) => column.key === key), select.value === value ? value : "");
      }
      if (this.input) this.input.value = "";
      this.look("");
    }
  }

  function collect(value, into) {
    if (typeof value === "string") into.push(value);
    else if (Array.isArray(value)) value.forEach((inner) => collect(inner, into));
    else if (value) Object.values(value).forEach((inner) => collect(inner, into));
  }

  function facts(labels, values) {
    const list = make("dl", { class: "facts" });
    labels.forEach((label, at) => {
      const value = values[at];
      if (value === null || value === undefined || value === "") return;
      list.append(make("div", {}, make("dt", {}, label), fact(shown(value))));
    });
    return list;
  }

  function fact(string) {
    const cell = make("dd", {});
    if (string.length <= LONG.fact) return put(cell, string);
    cell.append(text([string], LONG.fact));
    return cell;
  }

  // segments: strings, [kind, string] where a part of the example was found, a number of bytes that are left out
  function text(segments, longest = LONG.text) {
    const box = make("div", { class: "text", dir: "auto" });
    let left = longest;
    const fill = (from, offset) => {
      for (let at = from; at < segments.length; at += 1) {
        if (typeof segments[at] === "number") {
          box.append(make("span", { class: "gap", dir: "ltr" }, "⋯ " + number.format(segments[at]) + " bytes ⋯"));
          continue;
        }
        const [kind, string] = typeof segments[at] === "string" ? [null, segments[at]] : segments[at];
        const begin = at === from ? offset : 0;
        const piece = string.slice(begin, begin + left);
        if (kind) box.append(put(make("mark", { class: "k-" + kind, title: kind }), piece));
        else put(box, piece);
        left -= piece.length;
        if (begin + piece.length < string.length) return [at, begin + piece.length];
      }
      return null;
    };
    const rest = fill(0, 0);
    if (rest) {
      const more = make("button", { type: "button", class: "more" }, "show the rest");
      more.addEventListener("click", () => {
        left = Infinity;
        more.remove();
        fill(...rest);
      });
      box.append(more);
    }
    return box;
  }

  function matches(rows) {
    const head = make("tr", {}, ...meta.match.map((label, at) => make("th", { class: at === 1 || at === 2 ? "number" : null }, label)));
    const body = make("tbody", {});
    for (const row of rows) {
      const line = make("tr", {});
      row.forEach((value, at) => {
        const cell = make("td", { class: at === 1 || at === 2 ? "number" : null });
        if (at === 0) cell.append(make("span", { class: "key k-" + value.split(" ")[0] }));
        line.append(put(cell, shown(value)));
      });
      body.append(line);
    }
    const table = make("table", { class: "matches" }, make("thead", {}, head), body);
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "matches" }, table);
  }

  function evidence(item) {
    const left = make("div", { class: "asked" });
    for (const [kind, label, string] of item.parts) {
      left.append(make("h4", {}, make("span", { class: "key k-" + kind }), label), text([string]));
    }
    left.append(facts(meta.example, item.facts));
    const right = make("div", { class: "found" });
    item.documents.forEach((found, at) => {
      const title = item.documents.length > 1 ? "document " + (at + 1) + " of " + item.documents.length : "document";
      const heading = make("h4", {}, title, make("small", {}, " its text as it is stored, what matches is marked"));
      const shownText = found.text.length ? text(found.text) : null;
      right.append(make("article", {}, heading, ...[shownText, matches(found.matches)].filter(Boolean), facts(meta.document, found.facts)));
    });
    if (!item.documents.length) right.append(make("p", { class: "quiet" }, "No document is shown for this example."));
    return make("div", { class: "evidence" }, left, right);
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, at) => {
      if (head.dataset.sort === "no") return;
      const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const numeric = head.classList.contains("number");
        const now = head.getAttribute("aria-sort");
        const first = numeric ? "descending" : "ascending";
        const direction = now === first ? (numeric ? "ascending" : "descending") : first;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", direction);
        const value = (row) => {
          const raw = row.cells[at].dataset.value ?? row.cells[at].textContent.trim();
          return numeric ? (raw === "" ? null : Number(raw)) : raw;
        };
        const sign = direction === "ascending" ? 1 : -1;
        body.append(...[...body.rows].sort((a, b) => sign * compare(value(a), value(b))));
      });
    });
  }

  const lists = new Map();
  for (const place of document.querySelectorAll("[data-list]")) lists.set(place.dataset.list, new List(place));
  for (const table of document.querySelectorAll("table.sortable")) sortable(table);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-goes]");
    if (link && lists.has(link.dataset.goes)) lists.get(link.dataset.goes).choose(link.dataset);
  });
  document.documentElement.classList.add("ready");
})();
