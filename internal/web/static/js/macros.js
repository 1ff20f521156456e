// The list of macros in the composer: filtered by typing, Enter inserts. Loaded when the
// composer is first used.
document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("macros.css", import.meta.url) }));

const read = async (url) => {
  const response = await fetch(url);
  if (!response.ok) throw new Error(response.status);
  return new DOMParser().parseFromString(await response.text(), "text/html").body;
};

// setup opens the list by "/" in an empty line and by the button; once for a composer.
let done = false;
export function setup(composer) {
  if (done) return;
  done = true;
  const open = (event, typed) => {
    event.preventDefault();
    pick(composer, composer.elements[composer.elements.kind.value], typed);
  };
  composer.addEventListener("beforeinput", (event) => {
    const { target: area, data } = event;
    if (data !== "/" || area.localName !== "textarea") return;
    const around = area.value.slice(0, area.selectionStart) + "\0" + area.value.slice(area.selectionEnd);
    if (/(^|\n)\0(\n|$)/.test(around)) open(event, data);
  });
  // "@" in a note, and letters that were typed before this file was loaded.
  const { note } = composer.elements;
  const mention = () => import("./mentions.js").then((m) => m.complete(note));
  note.addEventListener("input", ({ data }) => data === "@" && mention());
  if (note.value !== note.defaultValue && note.value.includes("@")) mention();
  const button = composer.querySelector("[value=macros]");
  button.title = "/ in an empty line";
  button.addEventListener("click", (event) => open(event, ""));
  // "/" and letters that were typed before this file was loaded.
  const area = document.activeElement;
  if (area.localName !== "textarea" || area.form !== composer || area.value === area.defaultValue) return;
  const end = area.selectionStart;
  const typed = /(^|\n)\/([^\n]*)$/.exec(area.value.slice(0, end))?.[2];
  if (typed === undefined) return;
  area.setRangeText("", end - typed.length - 1, end, "end");
  pick(composer, area, "/", typed);
}

// pick opens the list above area, filtered by sought. typed is the text that opened it; leaving by Escape
// writes it, and what was typed since, into area.
function pick(composer, area, typed, sought = "") {
  const box = document.createElement("div");
  box.className = "macros";
  box.innerHTML =
    '<input id="macro-search" role="combobox" aria-label="Macro" aria-autocomplete="list" aria-expanded="true" aria-controls="macro-options" autocomplete="off" placeholder="Macro"><ul role="listbox" id="macro-options" aria-label="Macros"></ul><p class="small muted" role="status"></p>';
  const [input, list, state] = box.children;
  const say = (text) => (state.textContent = text);
  const close = () => {
    area.focus(); // the list's blur removes it
    box.remove();
  };
  const insert = (text) => {
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  };

  let shown = [];
  let marked = 0;
  const mark = (i) => {
    marked = Math.max(0, Math.min(i, shown.length - 1));
    shown.forEach((option, at) => option.setAttribute("aria-selected", at === marked));
    input.setAttribute("aria-activedescendant", shown[marked]?.id ?? "");
    shown[marked]?.scrollIntoView({ block: "nearest" });
  };
  const filter = () => {
    const sought = input.value.trim().toLowerCase();
    const name = (option) => option.firstElementChild.textContent.toLowerCase();
    const all = [...list.children];
    shown = all.filter((option) => sought.split(/\s+/).every((word) => name(option).includes(word)));
    shown.sort((a, b) => name(b).startsWith(sought) - name(a).startsWith(sought));
    all.forEach((option) => (option.hidden = !shown.includes(option)));
    list.prepend(...shown);
    say(!all.length ? "No macros yet. Create them in the settings." : !shown.length ? "No macro matches." : "");
    mark(0);
  };
  const loaded = read(new URL("macros?part=options", composer.action)).then(
    (body) => {
      list.append(...body.children);
      filter();
    },
    () => say("The macros could not be loaded."),
  );

  let choosing = false;
  let send = false; // Ctrl-Enter came before the text
  async function choose(option) {
    if (!option || choosing) return;
    choosing = true;
    const url = new URL("macros/" + option.dataset.id, composer.action);
    url.searchParams.set("kind", composer.elements.kind.value);
    let chip;
    try {
      chip = (await read(url)).firstElementChild;
    } catch {
      say("The macro could not be loaded.");
      choosing = send = false;
      return;
    }
    if (!box.isConnected) return;
    close();
    const { text, missing } = chip.dataset;
    const start = area.selectionStart;
    if (text) insert(text);
    composer.querySelector("[data-macro]")?.remove();
    composer.querySelector(".sends").before(chip);
    // Typing replaces the first variable without a value.
    const open = missing ? area.value.indexOf("{{", start) : -1;
    if (open < 0 && send) composer.requestSubmit(composer.querySelector("[data-sends]"));
    if (open >= 0) area.setSelectionRange(open, area.value.indexOf("}}", open) + 2);
  }

  input.addEventListener("input", filter);
  input.addEventListener("keydown", async (event) => {
    if (event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) mark(marked + step);
    else if (event.key === "Escape") {
      const rest = typed && typed + input.value;
      close();
      if (rest) insert(rest);
    } else if (event.key === "Enter") {
      event.preventDefault();
      event.stopPropagation();
      send ||= event.ctrlKey || event.metaKey;
      await loaded;
      choose(shown[marked]);
      return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  input.addEventListener("blur", () => box.remove());
  list.addEventListener("pointerdown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => choose(event.target.closest("[role=option]")));

  input.value = sought;
  area.before(box);
  input.focus();
}
