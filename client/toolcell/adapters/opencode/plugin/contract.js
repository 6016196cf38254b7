// The contract with the daemon: toolcell.proto as messages and as a gRPC client.
//
// The build puts the descriptors of the .proto files in the place of "toolcell:descriptors"; what a message means
// stands there, in proto/toolcell_proto/v1/toolcell.proto.
import { Client, credentials, Metadata } from "@grpc/grpc-js"
import protobuf from "protobufjs/light"
import descriptors from "toolcell:descriptors"

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

/** Why a request was not served: a reason for programs, a message for people. */
export class Refusal extends Error {
  constructor(reason, message) {
    super(message)
    this.reason = reason
  }
}

const UNAVAILABLE = 14

/** Reads a google.rpc.Status. */
export function refusalOf(value) {
  for (const detail of value.details ?? []) {
    if (detail.type_url?.endsWith("google.rpc.ErrorInfo")) {
      const info = errorInfo.decode(detail.value)
      if (info.domain === "toolcell" && info.reason) return new Refusal(info.reason.toLowerCase(), value.message)
    }
  }
  return new Refusal("", value.message || "The daemon refused it without a word.")
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
    return new Refusal("unreachable", `The daemon does not answer: ${error.details}`)
  }
  return new Refusal("", error.details || error.message)
}
