// The sentence that says what an alert rule does, as its form is filled in.
const sentence = document.querySelector("[data-sentence]");
const form = sentence.closest("form");

// {name} is the value of a field, or the label of an option; {name?text} is text if the box is checked.
function write() {
  sentence.textContent = sentence.dataset.sentence.replace(/\{(\w+)(\?([^}]*))?\}/g, (all, name, test, text) => {
    const field = form.elements[name];
    if (!field) return "";
    if (test) return field.checked ? text : "";
    return field.selectedOptions ? field.selectedOptions[0].label : field.value || "…";
  });
}

form.addEventListener("input", write);
write();
