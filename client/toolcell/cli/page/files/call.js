// One call: how its time was spent, what happened, what it was given and what came of it.

import { html, useState } from "./vendor/preact.js";
import { Action, Ending, Failed, Name, ToolLink, sign, useAnswer } from "./parts.js";
import { get } from "./net.js";
import { bytes, clock, lines, seconds, short } from "./text.js";

const RANGE_BYTES = 16 * 1024;

// What is between the queue and the run is the start of a worker, permission and hooks.
function phases(call, facts) {
    const total = call.ended - call.accepted;
    const known = facts.queue_seconds + facts.run_seconds + facts.stop_seconds;
    return [
        ["wait", "waited for a worker", facts.queue_seconds],
        ["begin", "started, asked, and was judged", Math.max(0, total - known)],
        ["run", "ran", facts.run_seconds],
        ["stop", "was stopped", facts.stop_seconds],
    ].filter(([, , value]) => value > 0);
}

function TimeLine({ call, facts }) {
    if (!call.ended || !facts) return null;
    const found = phases(call, facts);
    const total = found.reduce((sum, [, , value]) => sum + value, 0) || 1;
    return html`<div class="phases" aria-hidden="true">
            ${found.map(([kind, , value]) => html`<i class=${kind} style=${{ width: `${(100 * value) / total}%` }}></i>`)}
        </div>
        <ul class="key">
            ${found.map(([kind, title, value]) => html`<li><i class=${kind}></i>${title} ${seconds(value)}</li>`)}
        </ul>`;
}

function Story({ story, start }) {
    if (!story.length) return html`<p class="quiet">No events are remembered.</p>`;
    return html`<ol class="story">
        ${story.map((line) => html`<li><time datetime=${line.time}>+${seconds(Math.max(0, Date.parse(line.time) / 1000 - start))}</time> <${Name} text=${line.text} most=${600} /></li>`)}
    </ol>`;
}

function Output({ output }) {
    const [shown, setShown] = useState(null);
    const [error, setError] = useState(null);
    const read = async (start) => {
        try {
            setShown(await get(`outputs/${encodeURIComponent(output.id)}`, { start: Math.max(0, start), length: RANGE_BYTES }));
            setError(null);
        } catch (fault) {
            setError(fault);
        }
    };
    const size = output.kept_bytes;
    return html`<section aria-label=${`Output of ${short(output.source)}`}>
        <p>${short(output.source)}: ${bytes(output.bytes)} in ${output.lines} lines${output.complete ? "" : `, of which ${bytes(size)} are kept`}; until ${clock(output.expires_at)}</p>
        ${output.id
            ? html`<div class="actions">
                  <button type="button" onClick=${() => read(0)}>First part</button>
                  <button type="button" disabled=${!shown || shown.start === 0} onClick=${() => read(shown.start - RANGE_BYTES)}>Earlier</button>
                  <button type="button" disabled=${!shown || shown.end >= size} onClick=${() => read(shown.end)}>Later</button>
                  <button type="button" onClick=${() => read(size - RANGE_BYTES)}>Last part</button>
              </div>`
            : html`<p class="quiet">Nothing of it is kept. ${short(output.reason)}</p>`}
        <${Failed} error=${error} />
        ${shown && html`<p class="quiet" role="status">bytes ${shown.start} to ${shown.end} of ${size}</p><pre tabindex="0" aria-label="A part of the output">${lines(shown.text)}</pre>`}
    </section>`;
}

const fact = (title, value) => value !== "" && value !== null && value !== undefined && html`<dt>${title}</dt><dd>${value}</dd>`;

function Facts({ call, facts }) {
    return html`<dl>
        ${fact("tool", html`<${ToolLink} name=${call.tool} directory=${call.directory} />`)}
        ${fact("state", html`<${Ending} call=${call} />`)}
        ${fact("accepted", clock(call.accepted))} ${fact("ended", clock(call.ended))}
        ${fact("agent", `${short(call.agent)}${call.agent_name ? `, ${short(call.agent_name)}` : ""}`)}
        ${fact("session", short(call.session_id))} ${fact("directory", short(call.directory, 400))} ${fact("file", short(call.path ?? "", 400))}
        ${fact("worker", short(call.worker_id))}
        ${facts && [
            fact("processor", seconds(facts.cpu_seconds)),
            fact("memory", facts.memory_peak_bytes ? `${bytes(facts.memory_peak_bytes)} at most` : ""),
            fact("output", facts.output_bytes ? bytes(facts.output_bytes) : ""),
            fact("killed", facts.killed_processes || ""),
            fact("refused hosts", facts.refused_hosts.map((each) => short(each)).join(", ")),
        ]}
    </dl>`;
}

export function Call({ state, seat, rest: [id] }) {
    const { data, error } = useAnswer(`calls/${encodeURIComponent(id ?? "")}`, {}, sign(state));
    if (!data) return html`<h1>Call <${Name} text=${id} /></h1><${Failed} error=${error} />`;
    const { call, story } = data;
    const outcome = call.outcome;
    const facts = outcome?.facts;
    const outputs = [outcome?.output, ...(facts?.logs ?? [])].filter(Boolean);
    return html`<h1>Call <${Name} text=${call.call_id} /></h1>
        <${Failed} error=${error} />
        <div class="actions">
            ${call.state !== "ended" && html`<${Action} seat=${seat} label="Abort" question=${`Abort this call of ${call.tool}`} path="abort" values=${{ call_id: call.call_id }} asksReason danger />`}
        </div>
        ${outcome?.message && html`<div class=${outcome.kind === "ok" ? "note done" : "note"}>${lines(outcome.message).slice(0, 4000)}</div>`}
        <h2>Time line</h2>
        <${TimeLine} call=${call} facts=${facts} />
        <${Story} story=${story} start=${call.accepted} />
        <h2>Facts</h2>
        <${Facts} call=${call} facts=${facts} />
        <h2>Arguments</h2>
        ${data.arguments ? html`<pre tabindex="0" aria-label="Arguments">${lines(data.arguments)}</pre>` : html`<p class="quiet">They are not kept${data.arguments_bytes ? `; they had ${bytes(data.arguments_bytes)}` : ""}.</p>`}
        <h2>Result</h2>
        ${data.result ? html`<pre tabindex="0" aria-label="Result">${lines(data.result)}</pre>` : html`<p class="quiet">It is not kept${data.result_bytes ? `; it had ${bytes(data.result_bytes)}` : ", or there is none"}.</p>`}
        ${outputs.length > 0 && html`<h2>Outputs that were cut</h2>`}
        ${outputs.map((output) => html`<${Output} key=${output.id} output=${output} />`)}`;
}
