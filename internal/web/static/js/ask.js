// ask asks whether to send a reply despite a newer one, and calls answer with the choice.
export function ask(question, answer) {
  const dialog = document.createElement("dialog");
  dialog.innerHTML = '<form method="dialog"><h1></h1><p>Your text is kept.</p><p class="actions"><button value="send">Send anyway</button><button class="plain" autofocus>Keep writing</button></p></form>';
  dialog.querySelector("h1").textContent = dialog.ariaLabel = question;
  dialog.onclose = () => {
    dialog.remove();
    answer(dialog.returnValue);
  };
  document.body.append(dialog);
  dialog.showModal();
}
