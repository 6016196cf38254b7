// What a tool tried to reach when a name was not found or a host not reached; the daemon says whether it is granted.

import { isA, membersOf, property } from "./thrown.mjs";

const UNREACHED = new Set([
    "EAFNOSUPPORT",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "ENETDOWN",
    "ECONNREFUSED",
    "ECONNRESET",
    "EADDRNOTAVAIL",
    "ETIMEDOUT",
    "ENOTFOUND",
    "EAI_AGAIN",
    "UND_ERR_CONNECT_TIMEOUT", // as the fetch of Node says it
    "UND_ERR_SOCKET",
    "ConnectionRefused", // as the fetch of Bun says it
    "ConnectionClosed",
    "FailedToOpenSocket",
]);
const OF_TLS = /^(ERR_TLS_|ERR_SSL_|CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)|^(EPROTO|UNKNOWN_CERTIFICATE_VERIFICATION_ERROR)$/;
const REFUSED = new Set(["EACCES", "EPERM"]); // of a file, too: only where the call was one of the network
const WRAPPERS_MAX = 12; // errors that are looked at

/** Returns "host:port" or "host", "" where it is unknown, undefined for an error that is about no host. */
export function unreached(error) {
    const pending = [error];
    let found;
    for (let looked = 0; pending.length && looked < WRAPPERS_MAX; looked += 1) {
        const one = pending.pop();
        if (isUnreached(one)) found = placeOf(one) || found || "";
        if (isA(one, Error)) pending.push(property(one, "cause"), ...membersOf(one));
    }
    return found;
}

function isUnreached(error) {
    const [code, syscall, address] = ["code", "syscall", "address"].map((name) => property(error, name));
    if (typeof code !== "string") return false;
    if (syscall === "connect" && typeof address === "string" && address.startsWith("/")) return false; // a socket in the file system
    return UNREACHED.has(code) || OF_TLS.test(code) || (REFUSED.has(code) && syscall === "connect");
}

function placeOf(error) {
    const socket = property(error, "socket");
    const names = [property(error, "hostname"), property(error, "host"), property(error, "address")];
    const name = [...names, property(socket, "remoteAddress")].find((each) => typeof each === "string");
    if (name !== undefined) return written(name, property(error, "port") ?? property(socket, "remotePort"));
    try {
        const url = new URL(property(error, "path")); // of Bun, which says the whole address
        return written(url.hostname, url.port || (url.protocol === "https:" ? 443 : 80));
    } catch {
        return "";
    }
}

function written(name, port) {
    const host = name.includes(":") && !name.startsWith("[") ? `[${name}]` : name;
    const number = ["number", "string"].includes(typeof port) && /^[0-9]{1,5}$/.test(port);
    return number ? `${host}:${port}` : host;
}
