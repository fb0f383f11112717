// What pages need of a script: parts that move, forms whose answer is a part of the page, and the theme.
// No library, no build step. Text becomes markup in one place, `put`, and comes from this server alone.
"use strict";

(() => {
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy("sealcast", { createHTML: (markup) => markup })
    : { createHTML: (markup) => markup };

  // Exchanges what stands in an element, and keeps the focus where it was.
  function put(element, markup) {
    const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
    element.innerHTML = policy.createHTML(markup);
    if (focused) document.getElementById(focused)?.focus();
  }

  function putAll(parts) {
    for (const [id, markup] of Object.entries(parts)) {
      const element = document.getElementById(id);
      if (element) put(element, markup);
    }
  }

  // Parts that move: the server says what changed. A page in the background is not watched.
  const main = document.querySelector("main[data-live]");
  let source = null;

  function watch() {
    if (!main || source || document.hidden) return;
    source = new EventSource(main.dataset.live);
    source.addEventListener("parts", (event) => {
      document.documentElement.dataset.live = "on";
      putAll(JSON.parse(event.data));
    });
    source.addEventListener("error", () => {
      document.documentElement.dataset.live = "off";
    });
  }

  function rest() {
    if (source) source.close();
    source = null;
  }

  if (main) {
    document.addEventListener("visibilitychange", () => (document.hidden ? rest() : watch()));
    window.addEventListener("pagehide", rest);
    watch();
  }

  // Forms with data-to: the answer is put into that element. Without a script they are forms as always.
  async function send(form, submitter) {
    const place = document.getElementById(form.dataset.to.slice(1));
    const data = new URLSearchParams(new FormData(form, submitter));
    const reading = form.method === "get";
    const address = reading ? `${form.action.split("?")[0]}?${data}` : form.action;
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(address, {
        method: form.method.toUpperCase(),
        body: reading ? undefined : data,
        headers: { "sealcast-part": "1" },
      });
      put(place, await answer.text());
      if (reading) history.replaceState(null, "", address);
    } catch {
      put(place, '<p class="bad" role="alert">The console does not answer. Does it still run?</p>');
    }
    place.removeAttribute("aria-busy");
  }

  document.addEventListener("submit", (event) => {
    if (!event.target.dataset.to) return;
    event.preventDefault();
    send(event.target, event.submitter);
  });

  // Forms with data-typing send themselves a moment after the last key; those with data-choosing at every choice.
  let typing = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (!form || form.dataset.typing === undefined) return;
    clearTimeout(typing);
    typing = setTimeout(() => send(form, null), 250);
  });
  document.addEventListener("change", (event) => {
    const form = event.target.form;
    if (form && form.dataset.choosing !== undefined) form.requestSubmit();
  });

  // The theme: as the system is, unless one was chosen here.
  const themes = ["", "light", "dark"];
  const button = document.getElementById("theme");
  const names = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };

  function show(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    if (button) button.textContent = names[theme];
  }

  let theme = localStorage.getItem("theme") || "";
  show(theme);
  button?.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    localStorage.setItem("theme", theme);
    show(theme);
  });
})();
