// What is easier with a script. Without it everything works, too.
"use strict";

// A button that copies the command at the foot.
for (const code of document.querySelectorAll(".curl")) {
  if (!navigator.clipboard) break;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  code.after(button);
}

// A button that checks every box of a list.
for (const list of document.querySelectorAll(".memories")) {
  const boxes = [...list.querySelectorAll("input[type=checkbox]")];
  if (!boxes.length) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Choose all of this page";
  button.addEventListener("click", () => {
    const isOn = boxes.some((box) => !box.checked);
    for (const box of boxes) box.checked = isOn;
  });
  list.before(button);
}
