// What the views are made of.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { get, post } from "./net.js";
import { clock, seconds, short } from "./text.js";

export const Name = ({ text, most }) => html`<span class="name" title=${short(text, 2000)}>${short(text, most)}</span>`;

export const place = (view, ...rest) => `#/${[view, ...rest].map(encodeURIComponent).join("/")}`;

export const ToolLink = ({ name, directory }) =>
    html`<a href=${place("tool", name, ...(directory ? [directory] : []))}><${Name} text=${name} most=${80} /></a>`;

export const CallLink = ({ id }) => html`<a href=${place("call", id)}><${Name} text=${id} most=${14} /></a>`;

export function Ending({ call }) {
    if (call.state !== "ended") return html`<span class="warn">${short(call.state)}</span>`;
    const text = call.kind + (call.cause && call.cause !== call.kind ? ` (${call.cause})` : "");
    return html`<span class=${call.kind === "ok" ? "good" : "bad"}>${short(text, 60)}</span>`;
}

export const Failed = ({ error }) =>
    error && html`<div class="note" role="alert">${short(error.message, 1000)}${error.remedy ? `\n${short(error.remedy, 600)}` : ""}</div>`;

// Columns: [title, cell, class]. A scrolling region has to be reachable by the keyboard.
export function Table({ label, columns, rows, empty = "None.", keyed }) {
    if (!rows.length) return html`<p class="quiet">${empty}</p>`;
    return html`<div class="scroll" role="region" aria-label=${label} tabindex="0">
        <table>
            <thead>
                <tr>
                    ${columns.map(([title, , kind]) => html`<th scope="col" class=${kind}>${title}</th>`)}
                </tr>
            </thead>
            <tbody>
                ${rows.map((row, number) => html`<tr key=${keyed ? keyed(row) : number}>
                    ${columns.map(([, cell, kind]) => html`<td class=${kind}>${cell(row)}</td>`)}
                </tr>`)}
            </tbody>
        </table>
    </div>`;
}

export const CALL_COLUMNS = [
    ["Call", (call) => html`<${CallLink} id=${call.call_id} />`, "short"],
    ["Tool", (call) => html`<${ToolLink} name=${call.tool} directory=${call.directory} />`],
    ["State", (call) => html`<${Ending} call=${call} />`],
    ["Accepted", (call) => clock(call.accepted), "short"],
    ["Ran", (call) => (call.state === "ended" ? seconds(call.run_seconds) : seconds(Date.now() / 1000 - call.accepted)), "number"],
    ["Agent", (call) => html`<${Name} text=${call.agent} most=${40} />`],
    ["Message", (call) => html`<${Name} text=${call.message} most=${120} />`],
];

export const Calls = ({ calls, label = "Calls", empty = "No calls." }) =>
    html`<${Table} label=${label} columns=${CALL_COLUMNS} rows=${calls} empty=${empty} keyed=${(call) => call.session_id + call.call_id} />`;

// Ask for something, and again when `sign` changes; what is shown stays until the new answer is there.
export function useAnswer(path, values, sign) {
    const [answer, setAnswer] = useState({});
    const asked = JSON.stringify([path, values]);
    useEffect(() => {
        const ending = new AbortController();
        get(path, values, ending.signal)
            .then((data) => setAnswer({ data, asked }))
            .catch((error) => error.name !== "AbortError" && setAnswer((before) => ({ ...before, error })));
        return () => ending.abort();
    }, [asked, sign]);
    return answer.asked === asked || answer.error ? answer : {};
}

const FIGURES_SECONDS = 10;

// Figures are made of a thousand calls each time, so they follow a busy daemon more slowly than lists.
export function useSlowly(sign) {
    const shown = useRef({ sign, at: 0 });
    const now = Date.now() / 1000;
    if (shown.current.sign !== sign && now >= shown.current.at + FIGURES_SECONDS) shown.current = { sign, at: now };
    return shown.current.sign;
}

// What of a state says that lists have to be read again.
export const sign = (state) =>
    JSON.stringify([
        state?.status?.calls_ended,
        state?.last_event,
        state?.status?.sessions,
        state?.status?.disabled,
        state?.status?.quarantined,
        state?.calls?.filter((call) => call.state !== "ended").map((call) => [call.call_id, call.state]),
    ]);

// The same for what a file's loading is part of: no event is among it, as the loading of a broken file causes one.
export const catalogSign = (state) => JSON.stringify([state?.status?.disabled, state?.status?.quarantined, state?.status?.sessions]);

function summary(parts, value) {
    const numbers = parts.map(value).filter((each) => each !== null);
    return numbers.length ? Math.max(...numbers) : 0;
}

export function Rates({ rates }) {
    const { parts } = rates;
    const most = Math.max(1, summary(parts, (part) => part.ok + part.failed));
    const ok = parts.reduce((sum, part) => sum + part.ok, 0);
    const failed = parts.reduce((sum, part) => sum + part.failed, 0);
    const width = 100 / parts.length;
    const label = `${ok} calls ended well, ${failed} did not; at most ${most} in ${seconds((rates.until - rates.since) / parts.length)}`;
    return html`<figure>
        <figcaption>${label}${rates.cut ? " (of the last 1000 calls)" : ""}</figcaption>
        <svg class="chart" role="img" aria-label=${label} viewBox="0 0 100 100" preserveAspectRatio="none">
            ${parts.map((part, number) => {
                const high = (96 * part.ok) / most;
                const higher = (96 * part.failed) / most;
                const x = number * width + width * 0.1;
                return html`<rect class="ok" x=${x} y=${100 - high} width=${width * 0.8} height=${high} />
                    <rect class="failed" x=${x} y=${100 - high - higher} width=${width * 0.8} height=${higher} />`;
            })}
        </svg>
        <div class="axis"><span>${clock(rates.since)}</span><span>blue: ok, red: not</span><span>${clock(rates.until)}</span></div>
    </figure>`;
}

export function Latencies({ rates }) {
    const { parts } = rates;
    const most = summary(parts, (part) => part.longest_seconds);
    const points = (value) =>
        parts
            .map((part, number) => [number, part[value]])
            .filter(([, each]) => each !== null)
            .map(([number, each]) => `${((number + 0.5) * 100) / parts.length},${98 - (94 * each) / (most || 1)}`);
    const label = most ? `Times of running: the longest ${seconds(most)}` : "Times of running: no calls";
    const dots = points("longest_seconds").map((point) => point.split(","));
    return html`<figure>
        <figcaption>${label}</figcaption>
        <svg class="chart" role="img" aria-label=${label} viewBox="0 0 100 100" preserveAspectRatio="none">
            <polyline class="curve" points=${points("median_seconds").join(" ")} />
            ${dots.map(([x, y]) => html`<rect class="failed" x=${x - 0.4} y=${y - 2} width="0.8" height="4" />`)}
        </svg>
        <div class="axis"><span>${clock(rates.since)}</span><span>line: median, red: longest</span><span>${clock(rates.until)}</span></div>
    </figure>`;
}

// A button that asks for a reason, and does something after it was given. Escape and "Leave it" do nothing.
export function Action({ label, question, path, values, asksReason = false, danger = false, seat, done }) {
    const dialog = useRef(null);
    const [reason, setReason] = useState("");
    const [running, setRunning] = useState(false);
    if (!seat.may_act) return null;
    const act = async (event) => {
        event.preventDefault();
        setRunning(true);
        try {
            const answer = await post(`actions/${path}`, { ...values, ...(asksReason && reason ? { reason } : {}) });
            seat.say({ text: `Done: ${question}`, done: true });
            done?.(answer);
        } catch (error) {
            seat.say({ text: error.message, remedy: error.remedy });
        }
        setRunning(false);
        setReason("");
        dialog.current?.close();
    };
    return html`<button type="button" class=${danger ? "danger" : ""} onClick=${() => dialog.current.showModal()}>${label}</button>
        <dialog ref=${dialog} aria-label=${short(question, 100)}>
            <form onSubmit=${act}>
                <p class="name">${short(question)}</p>
                ${asksReason && html`<div class="field">
                    <label>Reason, for the audit and the agents <input value=${reason} maxlength="200" onInput=${(event) => setReason(event.target.value)} /></label>
                </div>`}
                <div class="actions">
                    <button class="main" type="submit" disabled=${running}>${label}</button>
                    <button type="button" onClick=${() => dialog.current.close()}>Leave it</button>
                </div>
            </form>
        </dialog>`;
}
