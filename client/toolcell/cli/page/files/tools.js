// The tools of a directory.

import { html, useState } from "./vendor/preact.js";
import { Failed, Name, Table, ToolLink, catalogSign, useAnswer } from "./parts.js";
import { short } from "./text.js";

const columns = (directory, disabled) => [
    ["Tool", (tool) => html`<${ToolLink} name=${tool.name} directory=${directory} />`],
    ["Description", (tool) => html`<${Name} text=${tool.description} most=${160} />`],
    ["Of", (tool) => html`<${Name} text=${tool.scope} most=${40} />`],
    ["Kind", (tool) => [tool.read_only && "read-only", tool.destructive && "destructive", tool.network && "network"].filter(Boolean).join(", ")],
    ["State", (tool) => (disabled.has(tool.name) ? html`<span class="warn">disabled</span>` : "")],
];

export function Tools({ state }) {
    const [directory, setDirectory] = useState("");
    const { data, error } = useAnswer("tools", { directory }, catalogSign(state));
    const disabled = new Set((state?.status?.disabled ?? []).map((each) => each.tool));
    return html`<h1>Tools</h1>
        <${Failed} error=${error} />
        ${data && html`<form class="line" onSubmit=${(event) => event.preventDefault()}>
                <label>Directory<select value=${data.directory} onChange=${(event) => setDirectory(event.target.value)}>
                    ${data.directories.map((each) => html`<option value=${each}>${short(each, 120)}</option>`)}
                </select></label>
            </form>
            <${Table} label="Tools" columns=${columns(data.directory, disabled)} rows=${data.tools} empty="No tools." keyed=${(tool) => tool.name} />
            ${data.problems.length > 0 && html`<p><a href="#/problems">${data.problems.length} files or tools cannot be used</a></p>`}`}`;
}
