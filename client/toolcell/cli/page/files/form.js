// A form made of a tool's schema, which calls it and shows what it tells. What has no field of its own is written as JSON.

import { html, useRef, useState } from "./vendor/preact.js";
import { CallLink, Failed } from "./parts.js";
import { Asked } from "./question.js";
import { call, post } from "./net.js";
import { lines, short } from "./text.js";

const EVENTS_MAX = 500;

function kindOf(schema) {
    const kinds = [schema, ...(schema.anyOf ?? [])].flatMap((each) => each.type ?? []).filter((each) => each !== "null");
    if (Array.isArray(schema.enum)) return "enum";
    return kinds.length === 1 && ["string", "integer", "number", "boolean"].includes(kinds[0]) ? kinds[0] : "json";
}

// The value of a field as JSON; undefined leaves it out. Throws for what is none.
function valueOf(name, schema, text) {
    if (text === "" || text === undefined) return undefined;
    const kind = kindOf(schema);
    if (kind === "string") return text;
    if (kind === "boolean") return text === "true";
    if (kind === "enum") return schema.enum[Number(text)];
    let value;
    try {
        value = JSON.parse(text);
    } catch {
        throw new Error(`${name}: this is no JSON.`);
    }
    if ((kind === "integer" || kind === "number") && typeof value !== "number") throw new Error(`${name}: this is no number.`);
    return value;
}

function Field({ name, schema, required, value, write }) {
    const kind = kindOf(schema);
    const id = `field-${name}`;
    const told = (event) => write(name, event.target.value);
    const options = kind === "boolean" ? [["true", "true"], ["false", "false"]] : (schema.enum ?? []).map((each, number) => [String(number), short(typeof each === "string" ? each : JSON.stringify(each), 80)]);
    const given = { id, name, value: value ?? "", required, "aria-describedby": `${id}-about` };
    return html`<div class="field">
        <label for=${id}>${short(name, 80)}${required ? " (required)" : ""}</label>
        ${kind === "boolean" || kind === "enum"
            ? html`<select ...${given} onChange=${told}><option value="">not given</option>${options.map(([key, title]) => html`<option value=${key}>${title}</option>`)}</select>`
            : kind === "json" || (kind === "string" && schema.format === undefined && !(schema.maxLength < 200))
              ? html`<textarea ...${given} onInput=${told}></textarea>`
              : html`<input ...${given} inputmode=${kind === "string" ? undefined : "decimal"} onInput=${told} />`}
        <small id=${`${id}-about`}>${kind === "json" ? "JSON. " : ""}${short(schema.description ?? "", 400)}${schema.default !== undefined ? ` Default: ${short(JSON.stringify(schema.default), 80)}` : ""}</small>
    </div>`;
}

function told(data) {
    switch (data.event) {
        case "log": return data.text.endsWith("\n") ? data.text : `${data.text}\n`;
        case "progress": return `${data.done}${data.total ? ` of ${data.total}` : ""} ${data.message}\n`;
        case "update": return `${data.content.map((block) => block.text ?? `[${block.type}]`).join("\n")}\n`;
        case "started": return `started on ${data.worker_id}\n`;
        case "gap": return `${data.count} events were lost\n`;
        default: return data.title ? `${data.title}\n` : "";
    }
}

export function Form({ tool, directory, seat }) {
    const [written, setWritten] = useState({});
    const [running, setRunning] = useState(null);
    const [events, setEvents] = useState([]);
    const [questions, setQuestions] = useState([]);
    const [outcome, setOutcome] = useState(null);
    const [error, setError] = useState(null);
    const aborting = useRef(null);
    const fields = Object.entries(tool.input_schema.properties ?? {});
    const required = new Set(tool.input_schema.required ?? []);
    const write = (name, value) => setWritten((before) => ({ ...before, [name]: value }));
    const submit = async (event) => {
        event.preventDefault();
        setError(null);
        setOutcome(null);
        setEvents([]);
        setQuestions([]);
        const given = {};
        try {
            for (const [name, schema] of fields) {
                const value = valueOf(name, schema, written[name]);
                if (value !== undefined) Object.defineProperty(given, name, { value, enumerable: true });
            }
            setRunning("");
            aborting.current = new AbortController();
            for await (const { name, data } of call({ tool: tool.name, arguments: given, directory }, aborting.current.signal)) {
                if (name === "accepted") setRunning(data.call_id);
                else if (name === "message") setEvents((before) => [...before.slice(-EVENTS_MAX), told(data)]);
                else if (name === "question") setQuestions((before) => [...before, data]);
                else if (name === "answered") setQuestions((before) => before.filter((each) => each.question !== data.question));
                else if (name === "ended") setOutcome({ ...data, call_id: running });
            }
        } catch (fault) {
            setError(fault);
        }
        setQuestions([]);
        setRunning((id) => {
            setOutcome((before) => before && { ...before, call_id: id });
            return null;
        });
    };
    const abort = () => post("actions/abort", { call_id: running, reason: "by the page" }).catch((fault) => seat.say({ text: fault.message, remedy: fault.remedy }));
    return html`<form onSubmit=${submit} aria-label=${`Call ${short(tool.name, 80)}`}>
            ${fields.map(([name, schema]) => html`<${Field} key=${name} name=${name} schema=${schema} required=${required.has(name)} value=${written[name]} write=${write} />`)}
            <div class="actions">
                <button class="main" type="submit" disabled=${running !== null}>Call</button>
                ${running && html`<button type="button" class="danger" onClick=${abort}>Abort this call</button>`}
            </div>
        </form>
        <${Failed} error=${error} />
        <div role="alert">${questions.map((asked) => html`<${Asked} key=${asked.question} asked=${asked} tool=${tool.name} seat=${seat} />`)}</div>
        <div role="log" aria-label="What the call tells">${events.length > 0 && html`<pre tabindex="0" aria-label="Events of the call">${lines(events.join(""))}</pre>`}</div>
        <div role="status">${outcome && html`<div class=${outcome.kind === "ok" ? "note done" : "note"}>${short(outcome.kind)}${outcome.cause ? ` (${short(outcome.cause)})` : ""}${outcome.message ? `: ${lines(outcome.message).slice(0, 2000)}` : ""}</div>
            <pre tabindex="0" aria-label="Result of the call">${lines((outcome.content ?? []).map((block) => block.text ?? `[${block.type}]`).join("\n"))}</pre>
            <p>Its story: <${CallLink} id=${outcome.call_id ?? ""} /></p>`}</div>`;
}
