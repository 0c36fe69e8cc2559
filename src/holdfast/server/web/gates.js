// Each verification of a task, gate by gate: its result and its output.

import { get, part } from "./api.js";
import { cut, failed, h, nothing, put } from "./dom.js";
import { long } from "./transcript.js";
import { ago, plural, span } from "./words.js";

const LIMIT = 200;
const OUTPUT_PART = 20000;
const OUTCOMES = { passed: ["good", "✓", "passed"], failed: ["bad", "✕", "failed"], timed_out: ["bad", "⏱", "timed out"], not_run: ["off", "–", "not run"] };
export const NO_GATE = "No gate is set, so nothing checks what the agent makes. Give the task a `verify:`, or set `gates:` in config/settings.yaml.";

export function gates(panel, state, signal) {
  let shown = "";
  const read = async () => {
    try {
      const { verdicts } = await get("/quality", { task: state.id, limit: LIMIT }, signal);
      const { hooks } = await get(`/tasks/${part(state.id)}/hooks`, {}, signal);
      const wanted = (state.view.definition || {}).verify || [];
      const words = JSON.stringify([verdicts, wanted, state.view.unchecked, hooks]);
      // Parts that a person has opened stay open while nothing changes.
      if (words === shown) return;
      shown = words;
      put(panel, verdicts.length ? h("ol", { class: "verdicts" }, verdicts.map((each) => verdict(each, signal))) : unjudged(wanted, state.view.unchecked),
        hooks.length > 0 && prepared(hooks, signal));
    } catch (error) {
      if (error.name !== "AbortError") put(panel, failed(error, "verdicts"));
    }
  };
  read();
  return read;
}

function unjudged(wanted, unchecked) {
  if (unchecked) return [nothing("Not judged yet", ""), noGate()];
  const others = wanted.length ? "These gates will judge the result, and those of the settings, where there are any:" : "It has no gates of its own; those of the settings count.";
  return nothing("Not judged yet", others, wanted.length > 0 && h("pre", { class: "typed" }, wanted.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join("\n")));
}

// The commands that made the worktrees ready, the newest first.
function prepared(hooks, signal) {
  const named = (each) => ({ ...each, name: `${each.hook} of ${each.attempt}${each.is_gates ? ", for gates" : ""}`, required: true });
  return h("section", { class: "hooks", "aria-label": "Setup and hooks" }, h("h3", {}, "Setup and hooks"),
    h("ul", { class: "gates" }, [...hooks].reverse().map((each) => gateOf(named(each), signal))));
}

const noGate = () => h("p", { class: "notice warn no-gate" }, NO_GATE);

function verdict(each, signal) {
  const results = each.gates || [];
  const [tone, sign, word] = each.passed ? ["good", "●", "passed"] : ["bad", "✕", "not passed"];
  const tally = Object.entries(OUTCOMES).map(([name, [, , told]]) => [results.filter((gate) => gate.outcome === name).length, told]).filter(([number]) => number);
  return h("li", { "data-attempt": each.attempt }, h("div", { class: "verdict-head" }, h("span", { class: `badge ${tone}` }, h("i", { "aria-hidden": "true" }, sign), word), h("b", {}, cut(each.attempt, 80)),
    h("span", { class: "faint" }, results.length ? `${plural(results.length, "gate")}: ${tally.map(([number, told]) => `${number} ${told}`).join(", ")}` : "no gate ran"), ago(each.at)),
  !each.passed && each.detail && h("p", { class: "why" }, cut(each.detail, 2000)),
  !results.length && each.passed && noGate(),
  results.length > 0 && h("ul", { class: "gates" }, results.map((gate) => gateOf(gate, signal))),
  (each.files || []).length > 0 && h("ul", { class: "gate-files" }, each.files.map((file) => h("li", {}, h("code", {}, h("bdi", {}, cut(file, 300)))))));
}

function gateOf(gate, signal) {
  const [tone, sign, word] = OUTCOMES[gate.outcome] || ["off", "?", gate.outcome];
  const ran = gate.outcome !== "not_run";
  const facts = [word, gate.told ? "a person said that it had passed" : ran && span(gate.seconds), ran && gate.code ? `code ${gate.code}` : "", gate.required ? "" : "advisory"].filter(Boolean).join(" · ");
  const body = h("div", { class: "gate-output" });
  const lines = gate.lines || [];
  if (lines.length) put(body, h("pre", { class: "detail", tabindex: "0", "aria-label": `Last lines of ${cut(gate.name, 60)}` }, lines.join("\n")));
  const whole = gate.output && h("button", { type: "button", class: "quiet", onclick: async () => {
    whole.disabled = true;
    try {
      const text = String(await get(`/blobs/${part(gate.output)}`, {}, signal));
      put(body, text.trim() ? long(text.replace(/\r\n?/g, "\n").trimEnd(), "pre", "detail whole", OUTPUT_PART) : h("p", { class: "faint" }, "It printed nothing."));
      whole.remove();
    } catch (error) {
      whole.disabled = false;
      if (error.name !== "AbortError") put(body, failed(error, "outputs"));
    }
  } }, lines.length ? "Whole output" : "Output");
  return h("li", { class: tone, "data-gate": gate.name, "data-outcome": gate.outcome },
    h("div", { class: "gate-head" }, h("i", { "aria-hidden": "true" }, sign), h("b", {}, cut(gate.name, 80)), gate.command && h("code", {}, cut(gate.command, 200)), h("span", { class: "faint num" }, facts), whole),
    body);
}
