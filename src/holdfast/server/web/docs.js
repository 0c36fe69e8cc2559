// Shows /openapi.json. Text only ever becomes text: nothing here makes markup of what it is given.
"use strict";

function made(tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}

function typeOf(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items)}`;
  if (schema.type === "object" && schema.additionalProperties) return `map of ${typeOf(schema.additionalProperties)}`;
  return schema.type || "anything";
}

function table(rows, heads) {
  const element = made("table");
  const head = element.appendChild(made("tr"));
  for (const each of heads) head.appendChild(made("th", each)).scope = "col";
  for (const row of rows) {
    const line = element.appendChild(made("tr"));
    row.forEach((cell, place) => line.appendChild(made("td")).appendChild(made(place < 2 ? "code" : "span", cell)));
  }
  return element;
}

function rulesOf(schema) {
  const known = ["default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"];
  return known.filter((each) => schema[each] !== undefined).map((each) => `${each} ${JSON.stringify(schema[each])}`);
}

function parametersOf(operation) {
  return operation.parameters.map((each) => [
    each.name, typeOf(each.schema), each.in + (each.required ? ", needed" : ""),
    [each.description, ...rulesOf(each.schema)].filter(Boolean).join("; "),
  ]);
}

function bodyOf(content) {
  return Object.entries(content || {}).map(([media, each]) => `${media}: ${typeOf(each.schema)}`).join("\n");
}

function operationPart(path, method, operation, titles) {
  const part = made("details");
  part.id = operation.operationId;
  part.dataset.words = `${path} ${operation.operationId} ${operation.summary}`.toLowerCase();
  const head = part.appendChild(made("summary"));
  head.appendChild(made("span", method.toUpperCase(), `method ${method}`));
  head.appendChild(made("code", path));
  head.appendChild(made("span", operation.summary, "about"));
  const inner = part.appendChild(made("div"));
  inner.appendChild(made("p", `Who may: ${operation["x-right"]}. Name: ${operation.operationId}.`));
  if (operation.parameters.length) {
    inner.appendChild(made("h3", "Parameters"));
    inner.appendChild(table(parametersOf(operation), ["name", "type", "where", ""]));
  }
  if (operation.requestBody) {
    inner.appendChild(made("h3", "Body"));
    inner.appendChild(made("pre", bodyOf(operation.requestBody.content)));
  }
  inner.appendChild(made("h3", "Answers"));
  const answers = Object.entries(operation.responses).map(([status, each]) => [
    status, bodyOf(each.content) || (each.$ref ? "problem" : ""), each.description || titles[status] || "",
  ]);
  inner.appendChild(table(answers, ["status", "type", ""]));
  return part;
}

function typePart(name, schema) {
  const part = made("details");
  part.dataset.words = name.toLowerCase();
  part.appendChild(made("summary")).appendChild(made("code", name));
  const inner = part.appendChild(made("div"));
  if (schema.description) inner.appendChild(made("p", schema.description));
  if (schema.properties) {
    const needed = new Set(schema.required || []);
    const rows = Object.entries(schema.properties).map(([field, each]) => [
      field, typeOf(each), needed.has(field) ? "always" : "", rulesOf(each).join("; "),
    ]);
    inner.appendChild(table(rows, ["field", "type", "", ""]));
  } else {
    inner.appendChild(made("pre", typeOf(schema)));
  }
  return part;
}

function show(found) {
  document.getElementById("about").textContent = `Version ${found.info.version}. ${found.info.description}`;
  const titles = {};
  for (const [status, each] of Object.entries(found.components.responses)) titles[status] = each.description;
  const main = document.getElementById("operations");
  for (const tag of found.tags) {
    const group = made("section");
    group.appendChild(made("h2", tag.name));
    group.appendChild(made("p", tag.description));
    for (const [path, methods] of Object.entries(found.paths)) {
      for (const [method, each] of Object.entries(methods)) {
        if (each.tags.includes(tag.name)) group.appendChild(operationPart(path, method, each, titles));
      }
    }
    if (group.querySelector("details")) main.appendChild(group);
  }
  const types = document.getElementById("types");
  types.appendChild(made("h2", "Types"));
  const names = Object.keys(found.components.schemas).sort();
  for (const name of names) types.appendChild(typePart(name, found.components.schemas[name]));
  const wanted = location.hash && document.getElementById(location.hash.slice(1));
  if (wanted) { wanted.open = true; wanted.scrollIntoView(); }
}

document.getElementById("search").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().trim();
  for (const each of document.querySelectorAll("details")) each.hidden = !each.dataset.words.includes(words);
});

fetch("/openapi.json").then((answer) => answer.json()).then(show).catch((error) => {
  document.getElementById("about").textContent = `The document could not be read: ${error.message}`;
});
