// Completes names of members after @ in a note. Loaded with the first @.

// complete opens the list of members above area, if the text before its cursor begins a mention. By Enter the selected name follows the @;
// Escape leaves what was typed, as does a text that fits no name.
export function complete(area) {
  const end = area.selectionStart;
  const typed = /(?:^|[^\p{L}\d_])@(\p{L}*)$/u.exec(area.value.slice(0, end))?.[1];
  if (typed === undefined || document.activeElement !== area) return;
  area.setRangeText("", end - typed.length, end, "end");
  const names = [...document.querySelectorAll("#field-assignee option")]
    .filter((option) => option.value)
    .map((option) => option.textContent.replace(/ \(you\)$|@.*/, ""));
  const box = document.createElement("div");
  box.className = "macros";
  box.innerHTML =
    '<input id="mention-search" role="combobox" aria-label="Mention" aria-autocomplete="list" aria-expanded="true" aria-controls="mention-options" autocomplete="off" placeholder="Name"><ul role="listbox" id="mention-options" aria-label="Members"></ul>';
  const [input, list] = box.children;
  let marked = 0;
  const mark = (i) => {
    marked = Math.max(0, Math.min(i, list.children.length - 1));
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", at === marked));
    input.setAttribute("aria-activedescendant", list.children[marked]?.id ?? "");
    list.children[marked]?.scrollIntoView({ block: "nearest" });
  };
  const filter = () => {
    const sought = input.value.toLowerCase();
    const fit = names.filter((name) => (" " + name.toLowerCase()).includes(" " + sought));
    list.replaceChildren(
      ...fit.map((name, i) => Object.assign(document.createElement("li"), { id: "mention-" + i, role: "option", textContent: name })),
    );
    mark(0);
    return fit.length;
  };
  const leave = (text) => {
    area.focus(); // the list's blur removes it
    box.remove();
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const choose = (option) => leave(option ? option.textContent + " " : input.value);
  input.addEventListener("input", () => filter() || leave(input.value));
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) mark(marked + step);
    else if (event.key === "Enter" || event.key === "Tab") choose(list.children[marked]);
    else if (event.key === "Escape") leave(input.value);
    else if (event.key === "Backspace" && !input.value) leave("");
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  input.addEventListener("blur", () => box.isConnected && box.remove());
  list.addEventListener("pointerdown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => choose(event.target.closest("[role=option]")));
  input.value = typed;
  if (!filter()) return leave(typed);
  area.before(box);
  input.focus();
}
