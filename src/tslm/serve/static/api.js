"use strict";
// Shows /openapi.json without anything from elsewhere.

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// Names stand between double backquotes in what the server says of itself.
function prose(tag, text) {
  const element = make(tag);
  text.split("``").forEach((part, place) => element.append(place % 2 ? make("code", part) : part));
  return element;
}

function resolve(schema, root) {
  return schema?.$ref ? root.components.schemas[schema.$ref.split("/").pop()] : schema ?? {};
}

function typeOf(schema, root) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf) return schema.anyOf.map((part) => typeOf(part, root)).join(" | ");
  if (schema.type === "array") return `[${typeOf(schema.items ?? {}, root)}]`;
  return schema.type ?? "any";
}

function fields(schema, root) {
  const table = make("table");
  for (const [name, field] of Object.entries(resolve(schema, root).properties ?? {})) {
    const row = make("tr");
    const limits = [["≥", field.minimum], ["≤", field.maximum], [">", field.exclusiveMinimum]].filter(([, value]) => value !== undefined);
    const told = [typeOf(field, root), ...limits.map(([sign, value]) => `${sign} ${value}`)];
    if (field.default !== undefined && field.default !== null) told.push(`default ${JSON.stringify(field.default)}`);
    row.append(make("th", name), make("td", told.join(", ")), prose("td", field.description ?? ""));
    table.append(row);
  }
  return table;
}

async function start() {
  const root = await (await fetch("/openapi.json")).json();
  for (const [path, verbs] of Object.entries(root.paths)) {
    for (const [verb, operation] of Object.entries(verbs)) {
      const section = make("section");
      const title = make("h2");
      title.append(make("span", verb.toUpperCase(), "verb"), make("code", path));
      section.append(title, prose("p", operation.description ?? operation.summary ?? ""));
      const body = operation.requestBody?.content?.["application/json"]?.schema;
      if (body) {
        const scroll = make("div", "", "scroll");
        scroll.append(fields(body, root));
        section.append(make("h3", "request"), scroll);
      }
      const answer = operation.responses?.["200"]?.content?.["application/json"]?.schema;
      if (answer) {
        const scroll = make("div", "", "scroll");
        scroll.append(fields(answer, root));
        section.append(make("h3", "answer"), scroll);
      }
      document.getElementById("operations").append(section);
    }
  }
}

start();
