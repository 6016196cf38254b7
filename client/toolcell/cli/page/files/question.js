// A question of a tool that runs: for a permission, or for a value. It is shown whole, as nothing that is not seen may be allowed.

import { html, useState } from "./vendor/preact.js";
import { post } from "./net.js";
import { lines, short } from "./text.js";

// What a button sends, by its title.
const ANSWERS = {
    permission: (asked, value) => [
        ["Allow", { allowed: true }],
        ...(asked.always.length ? [["Always, in this call", { allowed: true, always: true }]] : []),
        ["Deny", { allowed: false, message: value }],
    ],
    confirm: () => [["Yes", { value: true }], ["No", { value: false }]],
    select: (asked, value) => [["Answer", { value }]],
    input: (asked, value) => [["Answer", { value }]],
};

function Value({ asked, value, write }) {
    const told = (event) => write(event.target.value);
    if (asked.kind === "confirm") return null;
    if (asked.kind === "select")
        return html`<label>Answer <select value=${value} onChange=${told}>${asked.options.map((each) => html`<option value=${each}>${short(each, 200)}</option>`)}</select></label>`;
    return html`<label>${asked.kind === "permission" ? "Reason of a no, for the tool" : "Answer"} <input value=${value} maxlength=${asked.kind === "permission" ? 1000 : 32768} onInput=${told} /></label>`;
}

export function Asked({ asked, tool, seat }) {
    const [value, setValue] = useState(asked.kind === "select" ? asked.options[0] : (asked.default ?? ""));
    const [sent, setSent] = useState(false);
    const answer = async (said) => {
        setSent(true);
        try {
            await post("answer", { question: asked.question, ...said });
        } catch (fault) {
            setSent(false);
            seat.say({ text: fault.message, remedy: fault.remedy });
        }
    };
    const choices = ANSWERS[asked.kind](asked, value);
    const left = asked.kind === "permission" ? [] : [["Leave it", { value: null }]];
    return html`<form class="note warn" aria-label=${`Question of ${short(tool, 80)}`} onSubmit=${(event) => event.preventDefault()}>
        <p><b>${short(tool, 80)} asks</b></p>
        <pre class="plain" tabindex="0" aria-label="The question">${lines(asked.message)}</pre>
        ${asked.patterns?.length > 0 && html`<pre class="plain" tabindex="0" aria-label="What it is for">${lines(asked.patterns.join("\n"))}</pre>`}
        ${asked.always?.length > 0 && html`<p class="name">Always: ${lines(asked.always.join(", "))}</p>`}
        <${Value} asked=${asked} value=${value} write=${setValue} />
        <div class="actions">
            ${[...choices, ...left].map(([title, said]) => html`<button type="button" disabled=${sent} onClick=${() => answer(said)}>${title}</button>`)}
        </div>
    </form>`;
}
