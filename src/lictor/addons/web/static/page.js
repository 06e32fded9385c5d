// What the page does beyond plain HTML: live updates, colours, copying. Everything else works without it.
"use strict";

(() => {
  const root = document.documentElement;
  const KEY = "lictor-colours";
  const ORDER = ["auto", "light", "dark"];
  const TITLES = { auto: "Colours: automatic", light: "Colours: light", dark: "Colours: dark" };

  function readTheme() {
    try {
      const kept = localStorage.getItem(KEY);
      return ORDER.includes(kept) ? kept : "auto";
    } catch {
      return "auto"; // Some browsers keep nothing.
    }
  }

  function setTheme(name) {
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    try {
      localStorage.setItem(KEY, name);
    } catch {
      // It holds for this page only.
    }
  }

  // At once, before anything is drawn.
  setTheme(readTheme());

  document.addEventListener("DOMContentLoaded", () => {
    const theme = document.getElementById("theme");
    if (theme) {
      theme.hidden = false;
      theme.textContent = TITLES[readTheme()];
      theme.addEventListener("click", () => {
        const next = ORDER[(ORDER.indexOf(readTheme()) + 1) % ORDER.length];
        setTheme(next);
        theme.textContent = TITLES[next];
      });
    }
    equip();
    listen();
  });

  // --- what is in the content, which live updates replace

  function equip() {
    for (const button of document.querySelectorAll(".copy")) {
      button.hidden = !navigator.clipboard;
      button.addEventListener("click", () => copy(button));
    }
    const print = document.getElementById("print");
    if (print) {
      print.hidden = false;
      print.addEventListener("click", () => window.print());
    }
    for (const box of document.querySelectorAll("input[data-filter]")) {
      box.parentElement.hidden = false;
      box.addEventListener("input", () => find(box));
    }
    for (const form of document.querySelectorAll("form.filters")) {
      form.addEventListener("submit", () => dropEmpty(form));
      form.addEventListener("change", (event) => {
        if (event.target.matches("select, input[type=checkbox]")) form.requestSubmit();
      });
    }
  }

  // A file has no server that could search.
  function find(box) {
    const wanted = box.value.trim().toLowerCase();
    for (const item of document.getElementsByClassName(box.dataset.filter)) {
      item.hidden = !item.textContent.toLowerCase().includes(wanted);
    }
  }

  async function copy(button) {
    const text = button.parentElement.querySelector("pre").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }

  // Addresses say what is chosen, not what is not.
  function dropEmpty(form) {
    for (const field of form.elements) {
      if (field.name && !field.value) field.disabled = true;
    }
  }

  // A page that comes back from the browser's memory has its fields again.
  window.addEventListener("pageshow", () => {
    for (const field of document.querySelectorAll("form.filters :disabled")) field.disabled = false;
  });

  document.addEventListener("keydown", (event) => {
    const inField = event.target.matches("input, select, textarea");
    if (event.key !== "/" || inField || event.ctrlKey || event.metaKey || event.altKey) return;
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  });

  // --- live updates

  const PAUSE = 1000;
  let waiting = false;
  let last = 0;

  function listen() {
    const main = document.getElementById("content");
    if (!main || !main.dataset.live || !window.EventSource) return;
    const feed = new EventSource(main.dataset.live);
    feed.addEventListener("open", () => {
      say("Live", true);
      // What changed while there was no connection.
      if (last) schedule();
    });
    feed.addEventListener("change", schedule);
    feed.addEventListener("end", () => {
      feed.close();
      say("Not live: load the page again", false);
    });
    feed.addEventListener("error", () => {
      say(feed.readyState === EventSource.CLOSED ? "Not live" : "Connecting again", false);
    });
    // Browsers allow few connections to a host: a page that is left must not hold one.
    window.addEventListener("pagehide", () => feed.close());
    window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  }

  function say(text, on) {
    const place = document.getElementById("live");
    if (!place) return;
    place.classList.toggle("on", on);
    if (place.textContent !== text) place.textContent = text;
  }

  function schedule() {
    if (waiting) return;
    waiting = true;
    setTimeout(() => { waiting = false; refresh(); }, Math.max(0, last + PAUSE - Date.now()));
  }

  function isBusy(main) {
    const field = document.activeElement;
    return main.contains(field) && field.matches("input, select, textarea");
  }

  async function refresh() {
    const main = document.getElementById("content");
    // Nobody's typing is taken away.
    if (isBusy(main)) {
      last = Date.now();
      schedule();
      return;
    }
    last = Date.now();
    const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
    if (!answer) return;
    if (answer.status === 401) {
      location.reload();
      return;
    }
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = made.getElementById("content");
    if (!fresh || isBusy(main)) return;
    replace(main, fresh);
    document.title = made.title;
    say(`Live, updated ${new Date().toLocaleTimeString()}`, true);
  }

  function replace(main, fresh) {
    const focused = main.contains(document.activeElement) ? mark(document.activeElement) : null;
    const open = [...main.querySelectorAll("details")].map((each) => each.open);
    const scrolled = [...main.querySelectorAll("pre")].map((each) => [each.scrollTop, each.scrollLeft]);
    main.replaceChildren(...fresh.childNodes);
    main.querySelectorAll("details").forEach((each, index) => { if (open[index]) each.open = true; });
    main.querySelectorAll("pre").forEach((each, index) => {
      if (scrolled[index]) [each.scrollTop, each.scrollLeft] = scrolled[index];
    });
    equip();
    if (focused) {
      const again = [...main.querySelectorAll("a, button, summary")].find((each) => mark(each) === focused);
      if (again) again.focus({ preventScroll: true });
    }
  }

  function mark(node) {
    return `${node.tagName} ${node.getAttribute("href") || node.id || node.textContent}`;
  }
})();
