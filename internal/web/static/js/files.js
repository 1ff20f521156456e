// Files of the composer, by selection, drop and paste. A picture can be placed in the text of a
// reply by mail.
export function setup(composer, refuse) {
  const input = composer.elements.files;
  const list = composer.querySelector("[data-files]");
  let chosen = new DataTransfer();

  // place inserts a picture at the cursor.
  function place(file) {
    const area = composer.elements.reply;
    area.setRangeText(`![${file.name.replace(/\.\w+$/, "")}](attachment:${file.name})`, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
    area.focus();
  }

  function canPlace(file) {
    const { conversation, kind } = composer.elements;
    return kind.value === "reply" && composer.elements["copies." + conversation?.value] && /^image\/(png|jpeg|gif|webp)$/.test(file.type);
  }

  // named returns a file with a name that no other has, and that the text can hold.
  function named(file) {
    if (!canPlace(file)) return file;
    const [, stem, end] = file.name.replace(/[^\w.-]+/g, "-").match(/^(.*?)(\.\w+)?$/);
    const taken = [...chosen.files].map((other) => other.name);
    let name = stem + (end ?? "");
    for (let i = 2; taken.includes(name); i++) name = `${stem}-${i}${end ?? ""}`;
    return new File([file], name, { type: file.type });
  }

  function button(text, label, does) {
    const b = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: text });
    b.setAttribute("aria-label", label);
    b.addEventListener("click", does);
    return b;
  }

  function show() {
    input.files = chosen.files;
    list.hidden = !chosen.files.length;
    list.replaceChildren(
      ...[...chosen.files].map((file, i) => {
        const item = document.createElement("li");
        const box = Object.assign(document.createElement("span"), { className: "file" });
        box.append(`${file.name} (${file.size < 1e6 ? Math.ceil(file.size / 1e3) + " kB" : (file.size / 1e6).toFixed(1) + " MB"})`);
        if (canPlace(file)) box.append(button("Insert", "Insert " + file.name + " in the text", () => place(file)));
        box.append(
          button("×", "Remove " + file.name, () => {
            chosen.items.remove(i);
            show();
            input.focus();
          }),
        );
        item.append(box);
        return item;
      }),
    );
    const total = [...chosen.files].reduce((sum, file) => sum + file.size, 0);
    refuse(total > composer.dataset.most * 1e6 ? `The files exceed ${composer.dataset.most} MB in total. Remove some.` : "");
  }

  return {
    add(more, pasted) {
      for (const file of more.map(named)) {
        chosen.items.add(file);
        if (pasted && canPlace(file)) place(file);
      }
      show();
    },
    clear() {
      chosen = new DataTransfer();
      show();
    },
  };
}
