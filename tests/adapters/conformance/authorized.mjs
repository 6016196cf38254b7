// Loaded before the conformance suite, which knows no tokens: whatever it sends, by fetch or by http, says ours.
import { createRequire, syncBuiltinESMExports } from "node:module";
import http from "node:http";

const { Agent, setGlobalDispatcher } = createRequire(process.argv[1])("undici");
const authorization = `Bearer ${process.env.TOOLCELL_TOKEN}`;

setGlobalDispatcher(
  new Agent().compose((dispatch) => (options, handler) => {
    const given = options.headers ?? {};
    const headers = Array.isArray(given)
      ? [...given, "authorization", authorization]
      : { ...(Symbol.iterator in given ? Object.fromEntries(given) : given), authorization };
    return dispatch({ ...options, headers }, handler);
  }),
);

const request = http.request;
http.request = (...words) => {
  const made = request(...words);
  made.setHeader("Authorization", authorization);
  return made;
};
syncBuiltinESMExports();
