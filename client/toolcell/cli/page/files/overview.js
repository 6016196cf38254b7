// What goes on now: the machine, the daemon, its workers and queue, and how calls ended in the last hour.

import { html } from "./vendor/preact.js";
import { Action, Calls, Failed, Latencies, Name, Rates, Table, ToolLink, CallLink, sign, useAnswer, useSlowly } from "./parts.js";
import { bytes, clock, short, since } from "./text.js";

// The call that a worker has; of an MCP server with another number of calls how many of those that it takes.
function called({ call_id, server }) {
    if (server && server.running !== 1) return `${server.running} of ${server.places}`;
    return call_id && html`<${CallLink} id=${call_id} />`;
}

const WORKERS = [
    ["Worker", (worker) => html`<${Name} text=${worker.worker_id} />`, "short"],
    ["State", (worker) => short(worker.state)],
    ["For", (worker) => since(worker.since), "number"],
    ["File", (worker) => html`<${Name} text=${worker.path} most=${120} />`],
    ["Call", (worker) => called(worker), "short"],
    ["Calls", (worker) => worker.calls, "number"],
    ["Sessions", (worker) => worker.server?.sessions ?? "", "number"],
    ["Starts", (worker) => worker.server?.starts ?? "", "number"],
    ["Memory", (worker) => bytes(worker.memory_bytes), "number"],
    ["Process", (worker) => worker.pid ?? "", "number"],
];

const DEATHS = [
    ["Time", (event) => clock(event.time), "short"],
    ["Tool", (event) => event.tool && html`<${ToolLink} name=${event.tool} />`],
    ["Cause", (event) => html`<${Name} text=${event.details.cause} />`],
    ["What happened", (event) => html`<${Name} text=${event.message} most=${300} />`],
];

const EVENTS_MAX = 300;
const DEATHS_SHOWN = 10;

// A worker that was ended because it was not needed any more has died as well, and has no cause.
const crashes = (events) => events.filter((event) => event.details.cause).slice(0, DEATHS_SHOWN);

const Card = ({ title, value, kind }) => html`<li><b class=${kind}>${value}</b><span>${title}</span></li>`;

function Cards({ status, host, workers, calls }) {
    const waiting = calls.filter((call) => call.state === "waiting").length;
    const busy = workers.filter((worker) => worker.state !== "idle").length;
    return html`<ul class="cards">
        <${Card} title=${`daemon ${short(status.version)}, for ${since(status.started)}`} value=${short(status.state)} kind=${status.state === "serving" ? "good" : "warn"} />
        <${Card} title="calls that wait or run" value=${status.calls} />
        <${Card} title="of them in the queue" value=${waiting} />
        <${Card} title=${`workers, ${busy} busy`} value=${workers.length} />
        <${Card} title="sessions" value=${status.sessions} />
        <${Card} title="calls ended since its start" value=${status.calls_ended} />
        <${Card} title=${`load of ${host.processors} processors`} value=${host.load.toFixed(2)} />
        <${Card} title=${`free of ${bytes(host.memory_bytes)}`} value=${bytes(host.memory_free_bytes)} />
        <${Card} title="memory of the daemon" value=${bytes(status.memory_bytes)} />
        <${Card} title=${`outputs on disk, of ${bytes(status.spill_quota_bytes)}`} value=${bytes(status.spill_bytes)} />
    </ul>`;
}

export function Overview({ state, seat }) {
    const changed = sign(state);
    const rates = useAnswer("rates", { since: 3600 }, useSlowly(changed));
    const deaths = useAnswer("events", { type: "worker.dead", limit: EVENTS_MAX }, JSON.stringify(state?.last_event));
    if (!state?.status) return html`<h1>Overview</h1><p class="quiet">Waiting for the daemon.</p>`;
    const { status, workers, calls } = state;
    const running = calls.filter((call) => call.state !== "ended");
    return html`<h1>Overview</h1>
        ${status.drained !== null && html`<div class="note warn">New calls are refused: draining${status.drained ? `, ${short(status.drained)}` : ""}.</div>`}
        ${status.records_fault && html`<div class="note">Nothing can be recorded: ${short(status.records_fault, 600)}</div>`}
        <${Cards} ...${state} />
        <div class="actions">
            <${Action} seat=${seat} label="Abort all calls" question="Abort every call that waits or runs" path="abort-calls" values=${{ all: true }} asksReason danger />
            <${Action} seat=${seat} label="Restart workers" question="Retire all workers; busy ones after their call" path="restart" values=${{}} />
            <${Action} seat=${seat} label="Reload" question="Read the configuration and the tools again" path="reload" values=${{}} />
            ${status.drained === null
                ? html`<${Action} key="drain" seat=${seat} label="Drain" question="Refuse new calls until the drain is ended" path="drain" values=${{}} asksReason danger />`
                : html`<${Action} key="serve" seat=${seat} label="End the drain" question="Accept calls again" path="drain" values=${{ off: true }} />`}
            <${Action} seat=${seat} label="Log more" question="Log from debug on for ten minutes" path="log-level" values=${{ level: "debug" }} />
        </div>
        <h2>The last hour</h2>
        <${Failed} error=${rates.error} />
        ${rates.data && html`<div class="pair"><${Rates} rates=${rates.data} /><${Latencies} rates=${rates.data} /></div>`}
        <h2>Calls that wait or run</h2>
        <${Calls} calls=${running} label="Calls that wait or run" empty="No call waits or runs." />
        <h2>Workers</h2>
        <${Table} label="Workers" columns=${WORKERS} rows=${workers} empty="No worker is alive." keyed=${(worker) => worker.worker_id} />
        <h2>Last deaths of workers</h2>
        <${Failed} error=${deaths.error} />
        ${deaths.data && html`<${Table} label="Deaths of workers" columns=${DEATHS} rows=${crashes(deaths.data.events)} empty="No worker has died, as far as the records go." />`}
        <p class="quiet">Process ${status.pid}, socket ${short(status.socket)}, up since ${clock(status.started)}; memory at most ${bytes(status.memory_peak_bytes)}; records ${bytes(status.records_bytes)}, ${status.records_lost} lost; log from ${short(status.log_level)} on.</p>`;
}
