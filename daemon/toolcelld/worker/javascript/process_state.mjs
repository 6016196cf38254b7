// The state of the process that a call can change and that the next call would meet: the table, as in process_state.py.
//
// Each row has a name, how its value is taken, and how it is put back; where nothing can do that, the worker is replaced and
// the outcome says so. What the import of the file has left is the state that every call begins with.

import fs from "node:fs";
import os from "node:os";
import { isDeepStrictEqual } from "node:util";

const STANDARD = [0, 1, 2];

/** The table; `same` compares two values where they are no plain data. */
export const ROWS = [
    { name: "file descriptors 0 to 2", take: files },
    { name: "priority", take: () => os.getPriority(), putBack: (before) => os.setPriority(before) },
    { name: "directory", take: directory, putBack: (before) => process.chdir(before) },
    { name: "umask", take: umask, putBack: (before) => process.umask(before) },
    { name: "environment", take: () => ({ ...process.env }), putBack: setEnvironment },
    { name: "exit code", take: () => process.exitCode, putBack: (before) => (process.exitCode = before) },
    { name: "arguments", take: () => [...process.argv], putBack: (before) => process.argv.splice(0, Infinity, ...before) },
    { name: "listeners", take: listeners, same: isEachSame, putBack: setListeners },
    ...[
        ["process", () => process, ["exit", "kill", "stdin", "stdout", "stderr", "emitWarning", "title", "env", "argv"]],
        ["console", () => console],
        ["standard output", () => process.stdout, ["write"]],
        ["standard error", () => process.stderr, ["write"]],
        ["global values", () => globalThis, ["process", "console", "fetch", "setTimeout", "setInterval", "clearTimeout", "clearInterval"]],
        ["stack traces", () => Error, ["stackTraceLimit", "prepareStackTrace"]],
    ].map(([name, find, names]) => propertiesOf(name, find(), names)),
];

export class ProcessState {
    #kept = ROWS.map((row) => [row, row.take()]);

    /** Puts back what has changed; returns the names of the rows that are changed for good. */
    putBack() {
        const changed = ([row, before]) => !(row.same ?? isDeepStrictEqual)(row.take(), before);
        const lost = ([row, before]) => {
            try {
                if (!changed([row, before])) return false;
                row.putBack?.(before);
                return changed([row, before]);
            } catch {
                return true; // a tool can have put any object there
            }
        };
        return this.#kept.filter(lost).map(([row]) => row.name);
    }
}

function files() {
    return STANDARD.map((number) => {
        try {
            const { dev, ino } = fs.fstatSync(number);
            return `${dev} ${ino}`;
        } catch {
            return "closed";
        }
    });
}

function directory() {
    try {
        return process.cwd();
    } catch {
        return ""; // it is removed
    }
}

function umask() {
    const mask = process.umask(0o077);
    process.umask(mask);
    return mask;
}

function setEnvironment(before) {
    for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name];
    Object.assign(process.env, before);
}

function listeners() {
    return process.eventNames().map((event) => [event, ...process.rawListeners(event)]);
}

function setListeners(before) {
    for (const [event] of listeners()) process.removeAllListeners(event);
    for (const [event, ...each] of before) for (const listener of each) process.on(event, listener);
}

/** Whether two lists of lists have the same members. */
function isEachSame(one, other) {
    return (
        one.length === other.length &&
        one.every((each, at) => each.length === other[at].length && each.every((value, n) => value === other[at][n]))
    );
}

/** A row for properties of an object, which are taken without calling a getter. */
function propertiesOf(name, object, names = Object.keys(object)) {
    const look = () => names.map((key) => [key, Object.getOwnPropertyDescriptor(object, key)]);
    return {
        name,
        take: look,
        same: (one, other) =>
            one.every(([, now], at) => {
                const before = other[at][1];
                return now?.value === before?.value && now?.get === before?.get && !now === !before;
            }),
        putBack: (before) => {
            for (const [key, property] of before) {
                if (property) Object.defineProperty(object, key, property);
                else delete object[key];
            }
        },
    };
}
