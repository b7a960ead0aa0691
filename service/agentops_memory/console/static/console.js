// Conveniences only: the console also works without scripts.
"use strict";

// A button that copies the curl command at the bottom of the page.
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

// Keyboard shortcuts of the review: j and k change the line, a letter presses its button.
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
  if (place) go(place - 1); // also if the decided line was the last one
}
