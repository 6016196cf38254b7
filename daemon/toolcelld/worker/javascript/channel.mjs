// The worker's descriptors: frames and aborts from the daemon, and frames to it.

import fs from "node:fs";
import net from "node:net";

import { Decoder, Joiner, PAYLOAD_BYTES_MAX, encode } from "./frames.mjs";

const PROTOCOL = 4;
const ABORTS = 5;
const REPORTS = 6;
const UNREACHABLE = 70; // EX_SOFTWARE: the exit status where the daemon cannot be told anything any more
const ABORT_HEAD_BYTES = 10; // the number of the call, and the length of the reason

/** Sends one message to the daemon; returns when the kernel has all of it. A longer payload is split. */
export function send(header, ...parts) {
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    if (size <= PAYLOAD_BYTES_MAX) {
        write(encode(header, parts.length === 1 ? parts[0] : Buffer.concat(parts)));
        return;
    }
    write(encode({ ...header, size }));
    for (const part of parts)
        for (let at = 0; at < part.length; at += PAYLOAD_BYTES_MAX)
            write(encode({ type: "chunk" }, part.subarray(at, at + PAYLOAD_BYTES_MAX)));
}

const exit = process.exit.bind(process); // a tool's own call of it is an error of the tool

function write(data) {
    try {
        for (let at = 0; at < data.length;) at += fs.writeSync(REPORTS, data, at);
    } catch {
        exit(UNREACHABLE); // the tool has closed the descriptor
    }
}

/**
 * Receives messages until the daemon closes the channel.
 * onMessage gets {header, payload}; onEnd gets the error, or null.
 */
export function receive(onMessage, onEnd) {
    const decoder = new Decoder();
    const joiner = new Joiner();
    listen(PROTOCOL, onEnd, (data) => {
        for (const frame of decoder.feed(data)) {
            const message = joiner.add(frame);
            if (message !== null) onMessage(message);
        }
    });
}

/** Receives aborts: onAbort gets the highest number that is aborted, and the reason. */
export function receiveAborts(onAbort) {
    let rest = Buffer.alloc(0);
    listen(
        ABORTS,
        () => {},
        (data) => {
            rest = Buffer.concat([rest, data]);
            while (rest.length >= ABORT_HEAD_BYTES) {
                const end = ABORT_HEAD_BYTES + rest.readUInt16BE(8);
                if (rest.length < end) return;
                onAbort(Number(rest.readBigUInt64BE(0)), rest.subarray(ABORT_HEAD_BYTES, end).toString());
                rest = rest.subarray(end);
            }
        },
    );
}

function listen(descriptor, onEnd, onData) {
    const guarded = (data) => {
        try {
            onData(data);
        } catch (error) {
            onEnd(error);
        }
    };
    if (process.versions.bun) {
        // Its net.Socket receives nothing on a descriptor that it did not open.
        const read = async () => {
            for await (const data of Bun.file(descriptor).stream()) guarded(Buffer.from(data));
        };
        read().then(() => onEnd(null), onEnd);
        return;
    }
    const socket = new net.Socket({ fd: descriptor, readable: true, writable: false });
    socket.on("data", guarded);
    socket.on("end", () => onEnd(null));
    socket.on("error", onEnd);
}
