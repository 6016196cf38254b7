// What a call has left behind in its process: timers, children, servers, workers.
//
// Node lists what keeps its loop alive. Bun lists nothing, so its global timers are counted here.

const COUNTED = new Set(["Timeout", "Immediate", "ProcessWrap", "MessagePort", "TCPServerWrap", "UDPWrap"]);

const timers = new Set();

/** Counts timers from now on; before the tool file is loaded. */
export function watch() {
    if (!process.versions.bun) return;
    for (const [start, stop, repeats] of [
        ["setTimeout", "clearTimeout", false],
        ["setInterval", "clearInterval", true],
        ["setImmediate", "clearImmediate", false],
    ]) {
        const [starting, stopping] = [globalThis[start], globalThis[stop]];
        globalThis[start] = function (callback, ...rest) {
            const timer = starting(
                function (...values) {
                    if (!repeats) timers.delete(timer);
                    return callback.apply(this, values);
                },
                ...rest,
            );
            timers.add(timer);
            return timer;
        };
        Object.defineProperties(globalThis[start], Object.getOwnPropertyDescriptors(starting));
        globalThis[stop] = function (timer) {
            timers.delete(timer);
            return stopping(timer);
        };
    }
}

/** Returns the number of things that would go on after their call. */
export function count() {
    if (process.versions.bun) return [...timers].filter((timer) => timer.hasRef?.() ?? true).length;
    return process.getActiveResourcesInfo().filter((name) => COUNTED.has(name)).length;
}
