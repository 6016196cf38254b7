// The frames of the worker protocol: two lengths, a header and a payload. See docs/worker-protocol.md.

export const HEADER_BYTES_MAX = 65_536;
export const PAYLOAD_BYTES_MAX = 262_144;
export const MESSAGE_BYTES_MAX = 17_825_792;
const LENGTHS_BYTES = 8;
const SHOWN_CHARACTERS = 40;

/** The daemon broke the protocol, or a message that was to be sent is over a bound. */
export class FrameError extends Error {}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Returns a value as JSON that every receiver reads: without halves of surrogate pairs. */
export function json(value) {
    return JSON.stringify(value, (_, each) => (typeof each === "string" ? each.toWellFormed() : each));
}

/** Returns a frame as bytes. Throws FrameError for a header or a payload over its bound. */
export function encode(header, payload = Buffer.alloc(0)) {
    const head = Buffer.from(json(header));
    if (head.length > HEADER_BYTES_MAX) throw new FrameError(`a header of ${head.length} bytes`);
    if (payload.length > PAYLOAD_BYTES_MAX) throw new FrameError(`a payload of ${payload.length} bytes`);
    const lengths = Buffer.alloc(LENGTHS_BYTES);
    lengths.writeUInt32BE(head.length, 0);
    lengths.writeUInt32BE(payload.length, 4);
    return Buffer.concat([lengths, head, payload]);
}

/** Cuts a stream of bytes into frames. */
export class Decoder {
    #pieces = []; // received, and not read yet; joined when they hold a whole frame
    #bytes = 0;
    #needed = LENGTHS_BYTES;

    /** Returns the frames that are complete with these bytes, as {header, payload}. Throws FrameError. */
    feed(data) {
        this.#pieces.push(data);
        this.#bytes += data.length;
        if (this.#bytes < this.#needed) return [];
        let rest = this.#pieces.length === 1 ? data : Buffer.concat(this.#pieces);
        const frames = [];
        while (rest.length >= LENGTHS_BYTES) {
            const head = rest.readUInt32BE(0);
            const body = rest.readUInt32BE(4);
            if (head > HEADER_BYTES_MAX || body > PAYLOAD_BYTES_MAX)
                throw new FrameError(`lengths ${head} and ${body} are over the bounds`);
            this.#needed = LENGTHS_BYTES + head + body;
            if (rest.length < this.#needed) break;
            const start = LENGTHS_BYTES + head;
            frames.push({
                header: read(rest.subarray(LENGTHS_BYTES, start)),
                payload: rest.subarray(start, this.#needed),
            });
            rest = rest.subarray(this.#needed);
            this.#needed = LENGTHS_BYTES;
        }
        this.#pieces = rest.length ? [rest] : [];
        this.#bytes = rest.length;
        return frames;
    }
}

function read(bytes) {
    let header;
    try {
        header = JSON.parse(utf8.decode(bytes));
    } catch {
        throw new FrameError("a header that is not JSON");
    }
    if (header === null || typeof header !== "object" || Array.isArray(header))
        throw new FrameError("a header that is not an object");
    if (typeof header.type !== "string") throw new FrameError("a header without a type");
    return header;
}

/** Joins the chunks of a message to it. */
export class Joiner {
    #header = null;
    #parts = [];
    #missing = 0;

    /** Returns the message that is complete with this frame, or null. Throws FrameError. */
    add({ header, payload }) {
        const type = header.type.slice(0, SHOWN_CHARACTERS);
        if (this.#header !== null) {
            if (type !== "chunk" || payload.length === 0 || payload.length > this.#missing)
                throw new FrameError(
                    `${type} of ${payload.length} bytes where ${this.#missing} bytes of a chunk are missing`,
                );
            this.#parts.push(payload);
            this.#missing -= payload.length;
            if (this.#missing) return null;
            const message = { header: this.#header, payload: Buffer.concat(this.#parts) };
            this.#header = null;
            this.#parts = [];
            return message;
        }
        const size = header.size;
        if (size === undefined || size === null || size === payload.length) return { header, payload };
        if (!Number.isInteger(size) || size < payload.length || size > MESSAGE_BYTES_MAX)
            throw new FrameError(`a message with a size of ${String(size).slice(0, SHOWN_CHARACTERS)}`);
        this.#header = header;
        this.#parts = [payload];
        this.#missing = size - payload.length;
        return null;
    }
}
