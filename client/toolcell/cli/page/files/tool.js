// One tool: what it is, what it may do, how its calls ended, and a form that calls it.

import { html, useState } from "./vendor/preact.js";
import { Action, Calls, Failed, Latencies, Name, Rates, Table, catalogSign, sign, useAnswer, useSlowly } from "./parts.js";
import { Form } from "./form.js";
import { lines, short } from "./text.js";

const SETTINGS = [
    ["Setting", (each) => short(each.key)],
    ["Value", (each) => html`<${Name} text=${each.value} />`],
    ["From", (each) => html`<${Name} text=${each.origin} />`],
];
const PERMIT = [
    ["What", (each) => short([each.kind, each.subject].filter(Boolean).join(" "))],
    ["May", (each) => html`<span class=${each.allowed ? "good" : "warn"}><${Name} text=${each.answer} most=${300} /></span>`],
    ["Because", (each) => html`<${Name} text=${each.rule} most=${300} />`],
    ["To change it", (each) => html`<${Name} text=${each.remedy} most=${300} />`],
];
const TIMES = [[3600, "hour"], [86400, "day"], [604800, "week"]];

function Actions({ name, path, directory, state, seat, held }) {
    const disabled = state?.status?.disabled?.some((each) => each.tool === name);
    const own = (label, path, question, more = {}) =>
        html`<${Action} key=${path} seat=${seat} label=${label} path=${path} question=${question} ...${more} values=${{ tool: name, ...(more.values ?? {}) }} />`;
    return html`<div class="actions">
        ${own("Abort its calls", "abort-calls", `Abort all calls of ${name}`, { asksReason: true, danger: true })}
        ${disabled
            ? own("Enable", "enable", `Let ${name} be offered and run again`)
            : own("Disable", "disable", `End the calls of ${name} and refuse new ones until it is enabled`, { asksReason: true, danger: true, values: { directory } })}
        ${held
            ? own("Release", "release", `Let the file of ${name} run again`, { values: { tool: path } })
            : own("Quarantine", "quarantine", `Start no worker for the file of ${name}; its calls go on`, { asksReason: true, danger: true, values: { directory } })}
        ${own("Restart its workers", "restart", `Retire the workers of ${name}`)}
    </div>`;
}

export function Tool({ state, seat, rest: [name, directory = seat.directory] }) {
    const [period, setPeriod] = useState(3600);
    const changed = sign(state);
    const about = useAnswer(`tools/${encodeURIComponent(name ?? "")}`, { directory }, catalogSign(state));
    const rates = useAnswer("rates", { tool: name, since: period }, useSlowly(changed));
    const calls = useAnswer("calls", { tool: name, limit: 20 }, changed);
    const { tool, settings = [], permit = [], refused } = about.data ?? {};
    const off = state?.status?.disabled?.find((each) => each.tool === name);
    return html`<h1>Tool <${Name} text=${name} /></h1>
        <${Failed} error=${about.error ?? refused} />
        ${off && html`<div class="note warn">Disabled${off.reason ? `: ${short(off.reason)}` : ""}.</div>`}
        <${Actions} name=${name} path=${tool?.path} directory=${directory} state=${state} seat=${seat} held=${about.data?.quarantined} />
        ${tool && html`<pre class="plain" tabindex="0" aria-label="Description">${lines(tool.description).slice(0, 4000)}</pre>
            <p class="quiet name">${short(tool.path, 400)}</p>`}
        <h2>Calls over time</h2>
        <form class="line" onSubmit=${(event) => event.preventDefault()}>
            <label>The last<select value=${period} onChange=${(event) => setPeriod(Number(event.target.value))}>
                ${TIMES.map(([value, title]) => html`<option value=${value}>${title}</option>`)}
            </select></label>
        </form>
        <${Failed} error=${rates.error} />
        ${rates.data && html`<div class="pair"><${Rates} rates=${rates.data} /><${Latencies} rates=${rates.data} /></div>`}
        <h2>Last calls</h2>
        ${calls.data && html`<${Calls} calls=${calls.data.calls} label="Last calls" />`}
        ${tool && seat.may_act && html`<h2>Call it</h2><${Form} tool=${tool} directory=${directory} seat=${seat} />`}
        ${tool && html`<h2>What it may do</h2>
            <${Table} label="Permit" columns=${PERMIT} rows=${permit} />
            <h2>Settings</h2>
            <${Table} label="Settings" columns=${SETTINGS} rows=${settings} />
            <h2>Schema</h2>
            <pre tabindex="0" aria-label="Schema">${lines(JSON.stringify(tool.input_schema, null, 2)).slice(0, 60000)}</pre>`}`;
}
