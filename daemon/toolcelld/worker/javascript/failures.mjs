// What an error of a tool says about its cell: the limit that it met, and whether a host was not reached.

import fs from "node:fs";
import os from "node:os";

import { isA, membersOf, property } from "./thrown.mjs";

const LIMITS = { EMFILE: "open_files", EFBIG: "file_size" };
const UNREACHED = new Set([
    "EAFNOSUPPORT",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "ENETDOWN",
    "ECONNREFUSED",
    "ECONNRESET",
    "EADDRNOTAVAIL",
    "ENOTFOUND",
    "EAI_AGAIN",
    "ConnectionRefused", // as the fetch of Bun says it
    "FailedToOpenSocket",
]);
const WRAPPERS_MAX = 12; // errors that are looked at

/** Returns the fields of a result's header for an error; `enclosure` is that of the cell. */
export function fieldsOf(error, enclosure) {
    const found = {};
    const code = property(error, "code");
    const limit = code === "ENOSPC" && wasFull(error, enclosure) ? "disk" : typeof code === "string" ? LIMITS[code] : undefined;
    if (limit !== undefined) found.limit = limit;
    if (isUnreached(error)) found.unreached = true;
    return found;
}

/**
 * Returns whether the private temporary directory was full, which only a strict cell has. What filled it may be deleted
 * by now; then it was the cause if the project is not full, and a watch of a directory was not refused.
 */
function wasFull(error, enclosure) {
    if (enclosure !== "strict") return false;
    return isFull(os.tmpdir()) || (property(error, "syscall") !== "watch" && !isFull(process.cwd()));
}

function isFull(place) {
    try {
        const left = fs.statfsSync(place);
        return left.bavail === 0 || (left.files > 0 && left.ffree === 0);
    } catch {
        return false;
    }
}

function isUnreached(error) {
    const pending = [error];
    for (let looked = 0; pending.length && looked < WRAPPERS_MAX; looked += 1) {
        const one = pending.pop();
        if (UNREACHED.has(property(one, "code"))) return true;
        if (isA(one, Error)) pending.push(property(one, "cause"), ...membersOf(one));
    }
    return false;
}
