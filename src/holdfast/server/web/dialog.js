// A dialog for every change: what will happen, its input fields, and the server's sentence if it refuses.

import { h, put } from "./dom.js";

// `fields`: {name, label, kind, value, hint, required, options, list}. `act` gets the values; an error that it throws is shown.
export function openDialog({ title, words, fields = [], yes, danger = false, act }) {
  return new Promise((settle) => {
    const problem = h("p", { class: "notice bad", role: "alert", hidden: true });
    const go = h("button", { class: danger ? "danger" : "primary", type: "submit" }, yes);
    const controls = fields.map((field) => [field, control(field)]);
    let result = null;
    const form = h("form", { method: "dialog", novalidate: true, onsubmit: submit },
      h("h2", { id: "dialog-title" }, title),
      words && h("p", { class: "dialog-words" }, words),
      layout(controls),
      problem,
      h("div", { class: "dialog-buttons" },
        h("button", { type: "button", onclick: () => dialog.close() }, "Back"), go));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => { dialog.remove(); settle(result); } }, form);

    async function submit(event) {
      event.preventDefault();
      const missing = controls.find(([field, input]) => field.required && !input.value.trim());
      if (missing) {
        say(`${missing[0].label} is needed.`);
        missing[1].focus();
        return;
      }
      go.disabled = true;
      problem.hidden = true;
      try {
        result = await act(Object.fromEntries(controls.map(([field, input]) => [field.name, valueOf(field, input)])));
        if (result === null || result === undefined) result = true;
        dialog.close();
      } catch (error) {
        say(error.message);
        go.disabled = false;
      }
    }
    function say(sentence) {
      put(problem, sentence);
      problem.hidden = false;
    }
    document.body.append(dialog);
    dialog.showModal();
    const first = controls.find(([field]) => field.kind !== "check");
    if (first) first[1].focus();
  });
}

function valueOf(field, input) {
  if (field.kind === "check") return input.checked;
  if (field.kind === "number") return input.value === "" ? null : Number(input.value);
  if (field.kind === "lines") return input.value.split("\n").map((each) => each.trim()).filter(Boolean);
  if (field.kind === "names") return input.value.split(/[\s,]+/).filter(Boolean);
  return input.value;
}

let number = 0;

function control(field) {
  number += 1;
  const shared = { id: `field-${number}`, name: field.name, "aria-describedby": field.hint ? `hint-${number}` : undefined,
    "aria-required": field.required ? "true" : undefined, autocomplete: "off" };
  if (field.kind === "area" || field.kind === "lines") {
    const area = h("textarea", { ...shared, rows: String(field.rows || 3), spellcheck: field.kind === "lines" ? "false" : undefined });
    area.value = field.value || "";
    return area;
  }
  if (field.kind === "choice") {
    return h("select", shared, field.options.map(([value, label]) => h("option", { value, selected: value === field.value }, label)));
  }
  const type = { check: "checkbox", number: "number" }[field.kind] || "text";
  const input = h("input", { ...shared, type, step: field.step, min: field.min, max: field.max, placeholder: field.placeholder,
    list: field.list ? `list-${number}` : undefined, checked: field.kind === "check" && field.value === true });
  if (field.kind !== "check" && field.value !== undefined && field.value !== null) input.value = field.value;
  return input;
}

function layout(controls) {
  const row = ([field, input]) => h("div", { class: `field ${field.kind === "check" ? "check" : ""} ${field.half ? "half" : ""}` },
    h("label", { for: input.id }, field.label), input,
    field.list && h("datalist", { id: input.getAttribute("list") }, field.list.map((each) => h("option", { value: each }))),
    field.hint && h("small", { id: `hint-${input.id.slice(6)}` }, field.hint));
  const more = controls.filter(([field]) => field.more);
  return [h("div", { class: "fields" }, controls.filter(([field]) => !field.more).map(row)),
    more.length > 0 && h("details", { class: "more" }, h("summary", {}, "More"), h("div", { class: "fields" }, more.map(row)))];
}
