// What people have decided, and the calls that were made from the page.

import { html } from "./vendor/preact.js";
import { CallLink, Failed, Name, Table, ToolLink, sign, useAnswer } from "./parts.js";
import { clock, short } from "./text.js";

const DECISIONS = [
    ["Time", (each) => clock(each.time), "short"],
    ["Decision", (each) => short(each.type.replace(/^decision\./, ""))],
    ["Tool", (each) => each.tool && html`<${ToolLink} name=${each.tool} />`],
    ["Call", (each) => each.call_id && html`<${CallLink} id=${each.call_id} />`, "short"],
    ["What", (each) => html`<${Name} text=${each.message} most=${400} />`],
];

const asDecision = (call) => ({
    time: new Date(call.accepted * 1000).toISOString(),
    type: "call",
    tool: call.tool,
    call_id: call.call_id,
    message: `called from the page${call.kind ? `: ${call.kind}` : ""}`,
});

export function Audit({ state }) {
    const changed = sign(state);
    const decisions = useAnswer("events", { type: "decision.", limit: 500 }, changed);
    const calls = useAnswer("calls", { agent: "page", limit: 500 }, changed);
    const rows = [...(decisions.data?.events ?? []), ...(calls.data?.calls ?? []).map(asDecision)].sort((one, other) => Date.parse(other.time) - Date.parse(one.time));
    return html`<h1>Audit</h1>
        <p class="quiet">What people have decided, the newest first, as far as the records go; with the calls that were made from the page.</p>
        <${Failed} error=${decisions.error ?? calls.error} />
        ${decisions.data && html`<${Table} label="Decisions" columns=${DECISIONS} rows=${rows} empty="Nothing was decided yet." />`}`;
}
