// The trace that OpenCode is in, as W3C's traceparent, for tools that send something that belongs to it.
//
// OpenCode traces where OTEL_EXPORTER_OTLP_ENDPOINT is set. Its copy of OpenTelemetry's API cannot be imported from here;
// all copies share the one global object, and the key of the current span.
const API = Symbol.for("opentelemetry.js.api.1")
const SPAN = Symbol.for("OpenTelemetry Context Key SPAN")
const TRACEPARENT = /^[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

/** The current span's context, else that of the program that started OpenCode; "" without one. */
export function currentTrace(environment = process.env) {
  const span = globalThis[API]?.context?.active?.().getValue(SPAN)?.spanContext()
  const own = span && `00-${span.traceId}-${span.spanId}-${String(span.traceFlags?.toString(16)).padStart(2, "0")}`
  return [own, environment.TRACEPARENT].find((each) => TRACEPARENT.test(each ?? "")) ?? ""
}
