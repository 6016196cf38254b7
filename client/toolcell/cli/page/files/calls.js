// Running and earlier calls, by filters.

import { html, useState } from "./vendor/preact.js";
import { Calls, Failed, sign, useAnswer } from "./parts.js";

const TIMES = [["", "any time"], ["600", "10 minutes"], ["3600", "an hour"], ["86400", "a day"], ["604800", "a week"]];
const NONE = { tool: "", session: "", agent: "", outcome: "", since: "", failed: false, limit: 100 };

export function CallList({ state }) {
    const [filter, setFilter] = useState(NONE);
    const [written, setWritten] = useState(NONE);
    const { data, error } = useAnswer("calls", filter, sign(state));
    const write = (name, value) => setWritten((before) => ({ ...before, [name]: value }));
    const field = (name, title) =>
        html`<label>${title}<input name=${name} value=${written[name]} maxlength="1000" onInput=${(event) => write(name, event.target.value)} /></label>`;
    const apply = (event) => {
        event.preventDefault();
        setFilter(written);
    };
    return html`<h1>Calls</h1>
        <form class="line" onSubmit=${apply}>
            ${field("tool", "Tool")} ${field("session", "Session")} ${field("agent", "Agent")} ${field("outcome", "Outcome or cause")}
            <label>Of the last<select name="since" value=${written.since} onChange=${(event) => write("since", event.target.value)}>
                ${TIMES.map(([value, title]) => html`<option value=${value}>${title}</option>`)}
            </select></label>
            <label>At most<select name="limit" value=${written.limit} onChange=${(event) => write("limit", Number(event.target.value))}>
                ${[100, 300, 1000].map((value) => html`<option value=${value}>${value}</option>`)}
            </select></label>
            <label class="check"><input type="checkbox" name="failed" checked=${written.failed} onChange=${(event) => write("failed", event.target.checked)} />failed only</label>
            <button class="main" type="submit">Show</button>
            <button type="button" onClick=${() => {
                setWritten(NONE);
                setFilter(NONE);
            }}>Clear</button>
        </form>
        <${Failed} error=${error} />
        ${data && html`<p class="quiet" role="status">${data.calls.length} calls${data.calls.length === filter.limit ? ", the newest of more" : ""}</p>
            <${Calls} calls=${data.calls} empty="No call fits." />`}`;
}
