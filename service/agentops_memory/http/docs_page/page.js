"use strict";

// Swagger UI's own filter matches only the names of the groups.
function matches(group, name, phrase) {
  return group.update("operations", (all) => all.filter((each) => {
    const summary = each.getIn(["operation", "summary"]);
    const text = `${name} ${each.get("method")} ${each.get("path")} ${summary}`;
    return text.toLowerCase().includes(phrase.toLowerCase());
  }));
}

const search = () => ({
  fn: {
    opsFilter: (groups, phrase) => groups
      .map((group, name) => matches(group, name, phrase))
      .filter((group) => group.get("operations").size),
  },
});

function show(spec, key) {
  const viewer = SwaggerUIBundle({
    spec,
    dom_id: "#api",
    deepLinking: true,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    filter: true,
    plugins: [search],
    validatorUrl: null,
    onComplete: () => key && viewer.preauthorizeApiKey("bearer", key),
  });
}

// If the service requires a key, so does the description; only this page keeps the key.
async function open(key) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const answer = await fetch("openapi.json", { headers });
  const told = await answer.json();
  const entry = document.getElementById("entry");
  entry.hidden = answer.ok;
  if (answer.ok) {
    show(told, key);
  } else {
    document.getElementById("refusal").textContent = told.error;
  }
}

document.getElementById("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  open(document.getElementById("key").value.trim());
});
open("");
