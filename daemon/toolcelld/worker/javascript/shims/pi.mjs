// Stands for the packages of pi and oh-my-pi, where a project has not installed them: what tools use of them.

import * as typebox from "../vendor/typebox.mjs";
import { stringEnum } from "../host.mjs";

export const Type = typebox.Type;
export const StringEnum = stringEnum;

/** A class of the terminal, which is there to be named; a worker has no terminal. */
function ofTerminal(name) {
    return class {
        constructor() {
            throw new Error(`${name} shows something in a terminal, and there is none here`);
        }
    };
}

export const Box = ofTerminal("Box");
export const Container = ofTerminal("Container");
export const Markdown = ofTerminal("Markdown");
export const Spacer = ofTerminal("Spacer");
export const Text = ofTerminal("Text");
export const defineTool = (definition) => definition;
