// What asks on a terminal: the dialogs of a browser, which Bun has, and questions of readline. A cell has no terminal, so there
// a dialog would end at once as if it had been answered, and a question would never have an answer. On both engines they are
// an error that says what to use.

import { createRequire } from "node:module";

const SAID =
    'asks on a terminal, and the cell of this tool has none. To ask for permission: await context.ask({ question: "…" }); a value is best an argument of the tool.';

function refused(name) {
    return new Error(`${name} ${SAID}`);
}

/** Makes `alert`, `confirm` and `prompt` throw; before the tool file is loaded. */
export function refuseDialogs() {
    for (const name of ["alert", "confirm", "prompt"]) {
        const value = () => {
            throw refused(`${name}()`);
        };
        Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
    }
}

/** Makes the questions of readline to standard input fail, if the text of the tool file names it; others load it in vain. */
export function refuseQuestions(source) {
    if (!/\breadline\b/.test(source)) return;
    const require = createRequire(import.meta.url);
    for (const name of ["node:readline", "node:readline/promises"]) {
        const { Interface } = require(name);
        const asks = Interface.prototype.question;
        Interface.prototype.question = function (...words) {
            if (this.input === process.stdin) throw refused("readline's question()");
            return asks.apply(this, words);
        };
    }
}
