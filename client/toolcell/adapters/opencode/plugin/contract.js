// The contract with the daemon: toolcell.proto as messages and as a gRPC client.
//
// The build puts the descriptors of the .proto files in the place of "toolcell:descriptors"; what a message means
// stands there, in proto/toolcell_proto/v1/toolcell.proto. "toolcell:texts" has the remedies of
// client/toolcell/client/refusal.py, whose `refusal_of` is the model of the one here.
import { Client, credentials, Metadata } from "@grpc/grpc-js"
import protobuf from "protobufjs/light"
import descriptors from "toolcell:descriptors"
import { remedies } from "toolcell:texts"

const MESSAGE_BYTES_MAX = 64 * 1024 * 1024 // as the Python client has it
const SERVICE = "/toolcell.v1.ToolCell/"

protobuf.util.Long = null // numbers of events, bytes and lines are exact far beyond what they reach
protobuf.configure()

const root = protobuf.Root.fromJSON(descriptors)
const type = (name) => root.lookupType(name)

const attachRequest = type("toolcell.v1.AttachRequest")
const attachResponse = type("toolcell.v1.AttachResponse")
const readOutputRequest = type("toolcell.v1.ReadOutputRequest")
const readOutputResponse = type("toolcell.v1.ReadOutputResponse")
const status = type("google.rpc.Status")
const errorInfo = type("google.rpc.ErrorInfo")
const badRequest = type("google.rpc.BadRequest")
const quotaFailure = type("google.rpc.QuotaFailure")
const retryInfo = type("google.rpc.RetryInfo")

export const OutcomeKind = root.lookupEnum("toolcell.v1.OutcomeKind").valuesById

const encode = (message) => (value) => Buffer.from(message.encode(message.fromObject(value)).finish())
const decode = (message) => (bytes) => {
  const value = message.decode(bytes)
  value.wireBytes = bytes.length
  return value
}

/** A channel to the daemon on a socket, with the token that every RPC shows. */
export class Link {
  constructor(socket, token) {
    this.client = new Client(`unix:${socket}`, credentials.createInsecure(), {
      "grpc.enable_http_proxy": 0, // a unix socket is never behind one, whatever the environment says
      "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
      "grpc.use_local_subchannel_pool": 1, // else a new daemon on this path meets the old one's back-off
    })
    this.metadata = new Metadata()
    this.metadata.set("authorization", `Bearer ${token}`)
  }

  attach() {
    return this.client.makeBidiStreamRequest(
      `${SERVICE}Attach`, encode(attachRequest), decode(attachResponse), this.metadata,
    )
  }

  readOutput(request) {
    return this.client.makeServerStreamRequest(
      `${SERVICE}ReadOutput`, encode(readOutputRequest), decode(readOutputResponse), request, this.metadata,
    )
  }

  close() {
    this.client.close()
  }
}

/** Why a request was not served: a reason for programs, a message for people, and what to do where that is known. */
export class Refusal extends Error {
  constructor(reason, message, remedy = "") {
    super(message)
    this.reason = reason
    this.remedy = remedy
  }

  /** Both, as a user reads them. */
  get text() {
    return this.remedy ? `${this.message}\n${this.remedy}` : this.message
  }
}

const UNAVAILABLE = 14

/** Reads a google.rpc.Status; what the fields and quotas that it blames add stands in the message. */
export function refusalOf(value) {
  let reason = ""
  let retrySeconds = null
  const blamed = []
  const quotas = new Set()
  for (const { type_url: name = "", value: bytes } of value.details ?? []) {
    if (name.endsWith("google.rpc.ErrorInfo")) {
      const info = errorInfo.decode(bytes)
      if (info.domain === "toolcell" && info.reason) reason = info.reason.toLowerCase()
    } else if (name.endsWith("google.rpc.BadRequest")) {
      blamed.push(...badRequest.decode(bytes).fieldViolations.map((one) => [one.field, one.description]))
    } else if (name.endsWith("google.rpc.QuotaFailure")) {
      const { violations } = quotaFailure.decode(bytes)
      blamed.push(...violations.map((one) => [one.subject, one.description]))
      for (const one of violations) quotas.add(one.subject)
    } else if (name.endsWith("google.rpc.RetryInfo")) {
      const delay = retryInfo.decode(bytes).retryDelay
      retrySeconds = (delay?.seconds ?? 0) + (delay?.nanos ?? 0) / 1e9
    }
  }
  let message = value.message || "The daemon refused it without a word."
  for (const [what, why] of blamed) {
    if (!message.includes(why)) message += `\n  ${what}: ${why}`
    else if (quotas.has(what) && !message.includes(what)) message = `${what}: ${message}`
  }
  const remedy = retrySeconds === null ? (remedies[reason] ?? "") : `Try again in ${retrySeconds} s.`
  return new Refusal(reason, message, remedy)
}

/** Reads the end of an RPC, whether the daemon wrote it or grpc did. */
export function refusalOfRpc(error) {
  const [details] = error.metadata?.get("grpc-status-details-bin") ?? []
  try {
    if (details) return refusalOf(status.decode(details))
  } catch {
    // What grpc says of it is as good.
  }
  if (error.code === UNAVAILABLE) {
    return new Refusal("unreachable", `The daemon does not answer: ${error.details}`, remedies.unreachable)
  }
  return new Refusal("", error.details || error.message)
}
