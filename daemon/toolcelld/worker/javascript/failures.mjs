// What an error of a tool says about its cell: the limit that it met, and the host that was not reached.

import fs from "node:fs";
import os from "node:os";

import { property } from "./thrown.mjs";
import { unreached } from "./unreached.mjs";

const LIMITS = { EMFILE: "open_files", EFBIG: "file_size" };

/** Returns the fields of a result's header for an error; `enclosure` is that of the cell. */
export function fieldsOf(error, enclosure) {
    const found = {};
    const code = property(error, "code");
    const limit = code === "ENOSPC" && wasFull(error, enclosure) ? "disk" : typeof code === "string" ? LIMITS[code] : undefined;
    if (limit !== undefined) found.limit = limit;
    const place = unreached(error);
    if (place !== undefined) found.unreached = place;
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
