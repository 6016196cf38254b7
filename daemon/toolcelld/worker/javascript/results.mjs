// What a tool returned, as the parts of a result. The shapes are those of other systems' tools.

import { isUtf8 } from "node:buffer";
import { inspect } from "node:util";

import { FrameError } from "./frames.mjs";
import { isA } from "./thrown.mjs";

const DATA_URL = /^data:(image\/[^;,]+);base64,(.*)$/s;
const TITLE_CHARACTERS_MAX = 1_000;
const URI_CHARACTERS_MAX = 4_000;
const BLOCKS_MAX = 256;
const KEY_CHARACTERS_MAX = 60;

const OTHERWISE = "Return text or plain data.";
const THROW = "Throw it, and the call fails with its message.";
const readOf = (name) => `Return what it has: await ${name}.text() or await ${name}.json().`;
const COLLECT = "Return a list: await Array.fromAsync(values).";
// What to write in place of returning a value, by the name of its type.
const WAYS_OUT = {
    function: "Call it, and return what that gives.",
    Promise: "Return its value, by `await`.",
    Response: readOf("response"),
    Request: readOf("request"),
    Blob: readOf("blob"),
    ReadableStream: "Return its text: await new Response(stream).text().",
    Generator: "Return a list: [...values].",
    AsyncGenerator: COLLECT,
    Readable: COLLECT,
    URLSearchParams: "Return its text: String(parameters).",
    __proto__: null,
};

/** The value cannot be a result; the message is for the model. */
export class ResultError extends Error {}

/**
 * Returns {blocks, details, metadata, title, isError}; a block is {type, text}, {type, data, mime} or a link.
 * Throws ResultError for a value that JSON cannot carry.
 */
export function normalise(value) {
    if (value === undefined || value === null) return { blocks: [text("(no output)")] };
    if (typeof value === "string") return { blocks: [text(value)] };
    if (isBytes(value)) return { blocks: [text(decoded(value))] };
    const shaped = isPlain(value) ? shapeOf(value) : null;
    if (shaped !== null) return shaped;
    const data = json(value);
    return { blocks: [text(data)], details: data };
}

/** Sends a result as the message `result`, with these fields of its header; an error replaces one that no frame carries. */
export function sendResult(send, header, result) {
    try {
        if (result.blocks.length > BLOCKS_MAX)
            throw new FrameError(`${result.blocks.length} parts, where ${BLOCKS_MAX} are the most`);
        sendParts(send, header, result);
    } catch (error) {
        if (!(error instanceof FrameError)) throw error; // before the first byte: only the header can be over its bound
        const kind = header.kind === "ok" ? "tool_error" : header.kind;
        const why = `The tool's result has too many parts, or links that are too long: ${error.message}.`;
        sendParts(send, { ...header, kind }, { blocks: [text(why)] });
    }
}

function sendParts(send, header, result) {
    const parts = [];
    const blocks = result.blocks.map((block) => {
        if (block.type === "resource_link") return block;
        const bytes = block.type === "text" ? Buffer.from(block.text) : block.data;
        parts.push(bytes);
        return block.type === "text"
            ? { type: "text", bytes: bytes.length }
            : { type: "image", bytes: bytes.length, mime_type: block.mime };
    });
    const message = { ...header, blocks };
    for (const name of ["details", "metadata"]) {
        if (result[name] === undefined) continue;
        const bytes = Buffer.from(result[name]);
        message[name] = bytes.length;
        parts.push(bytes);
    }
    if (result.title) message.title = result.title.slice(0, TITLE_CHARACTERS_MAX);
    send(message, ...parts);
}

/** Returns the content of an update as the blocks that the daemon shows. */
export function updateContent(value) {
    const { blocks } = normalise(value);
    return blocks.map((block) =>
        block.type === "text" ? block : text("(a part that an update cannot show)"),
    );
}

function text(value) {
    return { type: "text", text: value };
}

/** Returns a value as JSON. Throws ResultError for one that JSON cannot carry, which JSON.stringify would leave out. */
export function json(value) {
    let data;
    try {
        data = JSON.stringify(value, function (key, each) {
            if (typeof each === "string") return each.toWellFormed();
            if (typeof each === "bigint") return each.toString();
            if (typeof each === "number" && !Number.isFinite(each)) return String(each); // JSON has no such number
            if (typeof each === "function" || typeof each === "symbol") throw withoutJson(each);
            if (typeof each !== "object") return each;
            return carried(this[key], each); // before its toJSON, and after
        });
    } catch (error) {
        if (error instanceof ResultError) throw error;
        throw new ResultError(`The tool's result cannot be written as JSON: ${error.message}`);
    }
    if (data === undefined)
        throw new ResultError(`The tool returned a ${typeof value}, which cannot be written as JSON.`);
    return data;
}

/** Returns what JSON.stringify writes of an object: in `value` it is as the tool made it, in `plain` as its toJSON says. */
function carried(value, plain) {
    if (isBytes(value)) return decoded(value);
    if (value instanceof Date) return plain ?? String(value); // "Invalid Date"
    if (plain === null || Array.isArray(plain)) return plain;
    if (ArrayBuffer.isView(plain)) return [...plain];
    if (plain instanceof Map) return objectOf(plain);
    if (plain[Symbol.toStringTag] === "Headers") return objectOfHeaders(plain);
    if (plain instanceof Set) return [...plain];
    if (plain instanceof RegExp) return plain.source;
    if (plain instanceof Error || Symbol.asyncIterator in plain || isEmptyInstance(plain))
        throw withoutJson(plain);
    return plain;
}

/** The object with the entries of a Map. Throws ResultError for keys that are the same in an object, as 1 and "1", or none. */
function objectOf(map) {
    const seen = new Map();
    for (const key of map.keys()) {
        if (typeof key === "symbol") throw withoutJson(key);
        const name = String(key);
        if (seen.has(name))
            throw new ResultError(
                `The tool returned a Map with the keys ${shownKey(seen.get(name))} and ${shownKey(key)}, which are both "${name.slice(0, KEY_CHARACTERS_MAX)}" in JSON, so a value would be lost. Give it keys of one type, or return a list of its entries: [...map].`,
            );
        seen.set(name, key);
    }
    return Object.fromEntries(map);
}

function shownKey(key) {
    return inspect(key, { customInspect: false, depth: 0, breakLength: Infinity }).slice(0, KEY_CHARACTERS_MAX);
}

/** The object of headers, in which those that are there several times are a list: each cookie is a header of its own. */
function objectOfHeaders(headers) {
    const found = Object.fromEntries(headers);
    const cookies = headers.getSetCookie?.() ?? [];
    return cookies.length > 1 ? { ...found, "set-cookie": cookies } : found;
}

function isBytes(value) {
    return (
        value instanceof Uint8Array ||
        value instanceof ArrayBuffer ||
        value instanceof DataView ||
        value instanceof SharedArrayBuffer
    );
}

function decoded(bytes) {
    const whole = ArrayBuffer.isView(bytes)
        ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
        : Buffer.from(bytes);
    if (!isUtf8(whole))
        throw new ResultError(
            `The tool returned ${whole.length} bytes that are no UTF-8 text; a picture is returned as { content: [{ type: "image", data, mimeType }] } with its bytes in base64, anything else is best written to a file.`,
        );
    return whole.toString();
}

/** Whether what an object of a class holds is nowhere that JSON.stringify looks: a Response, a generator, a WeakMap. */
function isEmptyInstance(value) {
    const above = Object.getPrototypeOf(value);
    if (above === null || above === Object.prototype) return false;
    return Object.keys(value).length === 0 && ![Number, String, Boolean].some((each) => value instanceof each);
}

function withoutJson(value) {
    const kind =
        typeof value === "object"
            ? (value[Symbol.toStringTag] ?? value.constructor?.name ?? "object")
            : typeof value;
    const wayOut = WAYS_OUT[kind] ?? (isA(value, Error) ? THROW : OTHERWISE);
    return new ResultError(`The tool returned something of type ${kind} that has no JSON form. ${wayOut}`);
}

function isPlain(value) {
    return typeof value === "object" && !Array.isArray(value);
}

// Each shape: the key that names it, the keys that may stand beside it, and how it is read.
const SHAPES = [
    ["output", ["title", "metadata", "attachments"], ofOutput],
    [
        "content",
        [
            "details",
            "isError",
            "is_error",
            "title",
            "metadata",
            "output",
            "structuredContent",
            "useless",
            "providerMetadata",
            "_meta",
        ],
        ofContent,
    ],
    [
        "textResultForLlm",
        ["resultType", "binaryResultsForLlm", "error", "sessionLog", "toolTelemetry"],
        ofModelText,
    ],
];

/** Returns the result that an object spells out, or null where it is data. */
function shapeOf(value) {
    const keys = Object.keys(value).filter((key) => value[key] !== undefined);
    for (const [key, others, read] of SHAPES) {
        if (!keys.includes(key) || !keys.every((each) => each === key || others.includes(each))) continue;
        try {
            return read(value);
        } catch (error) {
            if (error instanceof TypeError) return null; // the values do not fit: it is data
            throw error;
        }
    }
    return null;
}

function ofOutput({ output, title, metadata, attachments }) {
    if (typeof output !== "string") {
        if (title !== undefined || attachments !== undefined || metadata === undefined)
            throw new TypeError("output");
        const data = json(output);
        return { blocks: [text(data)], details: data, metadata: mapping(metadata) };
    }
    const files = list(attachments).map((each) => file(string(each.url), each.mime, each.filename));
    return { blocks: [text(output), ...files], title: optional(title), metadata: mapping(metadata) };
}

function ofContent(value) {
    const { content, title } = value;
    const blocks = typeof content === "string" ? [text(content)] : list(content, true).map(part);
    const structured = value.details ?? value.output ?? value.structuredContent;
    const beside = { ...value.metadata };
    for (const key of ["useless", "providerMetadata", "_meta"])
        if (value[key] != null) beside[key] = value[key];
    return {
        blocks,
        details: structured == null ? undefined : json(structured),
        title: optional(title),
        metadata: Object.keys(beside).length ? mapping(beside) : undefined,
        isError: Boolean(value.isError || value.is_error),
    };
}

function ofModelText(value) {
    const pictures = list(value.binaryResultsForLlm).map((each) => picture(string(each.data), each.mimeType));
    const beside = {};
    for (const key of ["error", "sessionLog", "toolTelemetry"])
        if (value[key] != null) beside[key] = value[key];
    return {
        blocks: [text(string(value.textResultForLlm)), ...pictures],
        details: Object.keys(beside).length ? json(beside) : undefined,
        isError: (value.resultType ?? "success") !== "success",
    };
}

function part(value) {
    if (value?.type === "text") return text(string(value.text));
    if (value?.type === "image") return picture(string(value.data), value.mimeType ?? value.mime_type);
    if (value?.type === "resource_link")
        return link(value.uri, value.name, value.mimeType ?? value.mime_type);
    if (value?.type === "file")
        return file(
            string(value.uri ?? value.url),
            value.mime ?? value.mimeType,
            value.name ?? value.filename,
        );
    throw new TypeError("part");
}

function file(url, mime, name) {
    const data = DATA_URL.exec(url);
    return data ? picture(data[2], mime || data[1]) : link(url, name, mime);
}

function picture(data, mime) {
    if (!string(mime).startsWith("image/")) throw new TypeError("picture");
    return { type: "image", data: Buffer.from(data, "base64"), mime };
}

function link(uri, name, mime) {
    const found = { type: "resource_link", uri: string(uri).slice(0, URI_CHARACTERS_MAX) };
    if (name) found.name = string(name).slice(0, TITLE_CHARACTERS_MAX);
    if (mime) found.mime_type = string(mime);
    return found;
}

function string(value) {
    if (typeof value !== "string") throw new TypeError("string");
    return value;
}

function optional(value) {
    return value == null ? undefined : string(value);
}

function mapping(value) {
    if (value == null) return undefined;
    if (!isPlain(value)) throw new TypeError("mapping");
    return json(value);
}

function list(value, required = false) {
    if (value == null && !required) return [];
    if (!Array.isArray(value)) throw new TypeError("list");
    return value;
}
