"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const element = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  document.documentElement.classList.add("js");
  const holder = document.getElementById("data");
  const data = holder ? JSON.parse(holder.textContent) : { nodes: [], commands: [], runs: [] };
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const choices = all("[data-show]");
  const MARKS = { p: "passed", f: "failed", e: "could not be tested", s: "skipped" };
  const SHOWN = 200;
  let show = "all";

  // What each thing that can be found says, read from the page once, when it is first needed.
  const texts = new Map();
  const textOf = (item) => {
    if (!texts.has(item)) {
      let text = `${item.textContent} ${item.dataset.nodes || ""} ${item.dataset.role || ""} ${item.dataset.name || ""}`;
      const role = item.parentElement.closest("[data-role]");
      if (role) text += ` ${role.dataset.role}`;
      texts.set(item, text.toLowerCase().replaceAll(/\s+/g, " "));
    }
    return texts.get(item);
  };
  const nodes = data.nodes.map((name) => name.toLowerCase());
  const rows = all("[data-item=row]");
  const names = rows.map((row) => row.dataset.node.toLowerCase());

  function matches(item, words) {
    const text = textOf(item);
    const runs = item.dataset.test === undefined ? [] : data.runs[Number(item.dataset.test)];
    return words.every((word) => text.includes(word) || runs.some((run) => nodes[run[0]]?.includes(word)));
  }
  const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const active = words.length > 0;
    const sections = { failure: 0, alert: 0, silent: 0, test: 0, change: 0, other: 0 };
    for (const kind of Object.keys(sections)) {
      for (const item of all(`[data-item=${kind}]`)) {
        const suits = show === "all" || kind === "failure" || kind === "silent"
          ? show !== "skipped" || kind === "test"
          : show === "bad" ? item.classList.contains("wrong") : item.classList.contains(show);
        item.hidden = !(suits && matches(item, words));
        if (!item.hidden) sections[kind] += 1;
      }
    }
    for (const list of all("[data-item=role]")) {
      list.hidden = !all("[data-item=test], [data-item=change]", list).some((item) => !item.hidden);
      if ((active || show !== "all") && !list.hidden && sections.test + sections.change <= 60) list.open = true;
    }
    // A word that is part of no node's name says nothing about nodes.
    const about = words.filter((word) => names.some((name) => name.includes(word)));
    rows.forEach((row, number) => {
      const named = about.every((word) => names[number].includes(word));
      row.hidden = !named || (show === "bad" && !row.classList.contains("wrong")) || show === "skipped";
    });
    for (const body of all(".matrix tbody")) {
      const inside = all("[data-item=row]", body);
      body.hidden = inside.length > 0 && inside.every((row) => row.hidden);
      const head = body.querySelector(".kind button");
      if (head) body.classList.toggle("folded", head.getAttribute("aria-expanded") === "false" && about.length === 0);
    }
    for (const section of all("main > section")) {
      const items = all("[data-item]", section);
      section.hidden = items.length > 0 && items.every((item) => item.hidden);
    }
    const told = [
      ["failure", "failure"], ["alert", "alert"], ["silent", "silent node"], ["change", "change"], ["test", "test"], ["other", "line"],
    ].filter(([kind]) => document.querySelector(`[data-item=${kind}]`));
    found.textContent = active || show !== "all"
      ? told.map(([kind, word]) => plural(sections[kind], word)).join(", ") : "";
  }

  function open(details) {
    const item = details.closest("[data-test]");
    const place = details.querySelector(".lazy");
    if (!item || !place || place.firstChild) return;
    const runs = [...data.runs[Number(item.dataset.test)]];
    runs.sort((a, b) => (a[1] === "p") - (b[1] === "p") || a[0] - b[0]);
    const table = element("table");
    const head = table.createTHead().insertRow();
    for (const word of ["Node", "Result", "Time", "Commands"]) {
      const cell = element("th", word);
      cell.scope = "col";
      head.append(cell);
    }
    const body = table.createTBody();
    for (const [node, mark, milliseconds, ...commands] of runs.slice(0, SHOWN)) {
      const row = body.insertRow();
      row.insertCell().textContent = data.nodes[node] || "cluster";
      row.insertCell().append(element("span", MARKS[mark], mark === "f" || mark === "e" ? "wrong" : ""));
      row.insertCell().textContent = milliseconds < 1000 ? `${milliseconds} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
      row.insertCell().append(...commands.map((number) => element("code", data.commands[number])));
    }
    place.append(table);
    if (runs.length > SHOWN) place.append(element("p", `… and ${runs.length - SHOWN} more; results.json has all`, "rest"));
  }

  function lookFor(query) {
    search.value = query;
    setShow("all");
    const first = all("[data-item=failure]").find((item) => !item.hidden);
    if (first) {
      first.querySelector("details").open = true;
      first.scrollIntoView({ block: "start" });
      first.focus({ preventScroll: true });
    }
  }
  function setShow(key) {
    show = key;
    for (const button of choices) button.setAttribute("aria-pressed", String(button.dataset.show === key));
    filter();
  }

  if (search) {
    let waiting = 0;
    search.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(filter, 60);
    });
    for (const button of choices) button.addEventListener("click", () => setShow(button.dataset.show));
    document.addEventListener("keydown", (event) => {
      const typing = /^(input|textarea|select)$/i.test(event.target.tagName);
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        search.focus();
        search.select();
      } else if (event.key === "Escape" && (search.value || show !== "all")) {
        search.value = "";
        setShow("all");
      }
    });
  }
  document.addEventListener("toggle", (event) => { if (event.target.open) open(event.target); }, true);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-query]");
    if (link) {
      event.preventDefault();
      lookFor(link.dataset.query);
    }
    const fold = event.target.closest(".kind button");
    if (fold) {
      const expanded = fold.getAttribute("aria-expanded") === "true";
      fold.setAttribute("aria-expanded", String(!expanded));
      fold.closest("tbody").classList.toggle("folded", expanded);
    }
  });
  // On paper every failure is told in full, whatever is folded on the screen.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all(".failure > details:not([open])");
    for (const details of folded) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
  });
})();
