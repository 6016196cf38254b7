// What is wrong, and what would mend it.

import { html, useState } from "./vendor/preact.js";
import { Action, Failed, Name, Table, ToolLink, catalogSign, useAnswer } from "./parts.js";
import { clock, lines, short } from "./text.js";

const FILES = [
    ["File", (each) => html`<${Name} text=${each.path} most=${200} />`],
    ["Tool", (each) => html`<${Name} text=${each.tool ?? ""} most=${80} />`],
    ["Reason", (each) => short(each.reason)],
    ["Line", (each) => each.line ?? "", "number"],
    ["Message", (each) => html`<span class="name whole">${lines(each.message).slice(0, 2000)}</span>`],
];
const WAITING = [
    ["Tool or file", (each) => html`<${Name} text=${each.tool} most=${200} />`],
    ["Waits for", (each) => html`<${Name} text=${each.held.join(", ")} most=${300} />`],
    ["Why", (each) => html`<${Name} text=${each.why} most=${300} />`],
    ["To see and grant it", (each) => html`<code>${short(each.command, 300)}</code>`],
];

function Place({ about }) {
    if (!about.problems.length && !about.waiting.length && !about.notices.length && !about.refused) return null;
    return html`<section>
        <h2><${Name} text=${about.directory} /></h2>
        ${about.refused && html`<${Failed} error=${{ message: about.refused }} />`}
        ${about.notices.map((each) => html`<div class="note warn">${lines(each)}</div>`)}
        ${about.problems.length > 0 && html`<h3>Files and tools that cannot be used</h3><${Table} label="Broken files" columns=${FILES} rows=${about.problems} />`}
        ${about.waiting.length > 0 && html`<h3>Trust that is wanted</h3><${Table} label="Trust that is wanted" columns=${WAITING} rows=${about.waiting} />`}
    </section>`;
}

export function Problems({ state, seat }) {
    const [looks, setLooks] = useState(0);
    const { data, error } = useAnswer("problems", {}, `${looks} ${catalogSign(state)}`);
    const held = [
        ["File", (each) => html`<${Name} text=${each.path} most=${200} />`],
        ["Since", (each) => clock(each.since), "short"],
        ["Why", (each) => html`<${Name} text=${each.by ?? each.deaths.map((death) => death.cause).join(", ")} most=${200} />`],
        ["Last words", (each) => html`<${Name} text=${each.deaths.at(-1)?.stderr ?? ""} most=${300} />`],
        ["", (each) => html`<${Action} seat=${seat} label="Release" question=${`Let ${each.path} run again`} path="release" values=${{ tool: each.path }} />`],
    ];
    const off = [
        ["Tool", (each) => html`<${ToolLink} name=${each.tool} />`],
        ["Since", (each) => clock(each.since), "short"],
        ["Reason", (each) => html`<${Name} text=${each.reason ?? ""} />`],
        ["", (each) => html`<${Action} seat=${seat} label="Enable" question=${`Let ${each.tool} be offered and run again`} path="enable" values=${{ tool: each.tool }} />`],
    ];
    return html`<h1>Problems</h1>
        <div class="actions"><button type="button" onClick=${() => setLooks(looks + 1)}>Look again</button></div>
        <${Failed} error=${error} />
        ${data && html`${data.records_fault && html`<div class="note">Nothing can be recorded: ${short(data.records_fault, 600)}</div>`}
            <h2>Files in quarantine</h2>
            <${Table} label="Files in quarantine" columns=${seat.may_act ? held : held.slice(0, -1)} rows=${data.quarantined} empty="No file is in quarantine." />
            <h2>Tools that are disabled</h2>
            <${Table} label="Disabled tools" columns=${seat.may_act ? off : off.slice(0, -1)} rows=${data.disabled} empty="No tool is disabled." />
            ${data.places.map((about) => html`<${Place} key=${about.directory} about=${about} />`)}
            ${data.places.every((about) => !about.problems.length && !about.waiting.length) && html`<h2>Files and trust</h2><p class="quiet">No file is broken, and no trust is wanted.</p>`}`}`;
}
