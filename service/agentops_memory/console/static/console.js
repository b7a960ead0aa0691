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
  button.textContent = "Select all on this page";
  button.addEventListener("click", () => {
    const isOn = boxes.some((box) => !box.checked);
    for (const box of boxes) box.checked = isOn;
  });
  list.before(button);
}

// Keys of the review: j and k go from line to line, a letter presses the button that names it.
for (const list of document.querySelectorAll(".lines")) {
  const lines = [...list.children];
  const go = (at) => lines[Math.min(Math.max(at, 0), lines.length - 1)].focus();
  for (const keys of document.querySelectorAll(".keys")) keys.hidden = false;
  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = lines.findIndex((line) => line.contains(event.target));
    if (event.key === "j") go(at + 1);
    else if (event.key === "k") go(at - 1);
    else if (/^[a-z]$/.test(event.key)) {
      lines[at].querySelector(`[aria-keyshortcuts="${event.key}"]`)?.click();
    }
  });
  const [, place] = /^#line-(\d+)$/.exec(location.hash) ?? [];
  if (place) go(place - 1); // also when it was the last one
}
