/** Status codes shared by gRPC and ttRPC (google.rpc.Code). */
export const StatusCode = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
} as const

export type StatusCodeName = keyof typeof StatusCode

const NAMES = Object.keys(StatusCode) as readonly StatusCodeName[]

export function statusCodeName(code: number): StatusCodeName {
  return NAMES.find((name) => StatusCode[name] === code) ?? 'UNKNOWN'
}

/** The side that made a call fail, for the log; `none` for a normal end. */
export type Fault = 'caller' | 'guest' | 'none'

/** The fault of a code, unless the error sets it: some mistakes of callers are INTERNAL. */
const FAULTS: Readonly<Record<StatusCodeName, Fault>> = {
  OK: 'none',
  CANCELLED: 'none',
  UNKNOWN: 'caller',
  INVALID_ARGUMENT: 'caller',
  DEADLINE_EXCEEDED: 'guest',
  NOT_FOUND: 'caller',
  ALREADY_EXISTS: 'caller',
  PERMISSION_DENIED: 'caller',
  RESOURCE_EXHAUSTED: 'caller',
  FAILED_PRECONDITION: 'caller',
  ABORTED: 'caller',
  OUT_OF_RANGE: 'caller',
  UNIMPLEMENTED: 'caller',
  INTERNAL: 'guest',
  UNAVAILABLE: 'guest',
}

/** What a program does something about; only gRPC carries it. A machine is on its way to another host, or runs there. */
export type Reason = 'moving' | 'moved'

/** The error class of the agent. `message` names what failed; a kernel error has its `errno` name, such as `ENOENT`. */
export class AgentError extends Error {
  readonly code: StatusCodeName
  readonly errno: string | undefined
  readonly reason: Reason | undefined
  /** Logged in place of a message that may quote environments, arguments or data. */
  readonly loggedMessage: string | undefined
  readonly fault: Fault

  constructor(
    code: StatusCodeName,
    message: string,
    options: {
      cause?: unknown
      errno?: string
      reason?: Reason | undefined
      loggedMessage?: string
      fault?: Fault
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'AgentError'
    this.code = code
    this.errno = options.errno
    this.reason = options.reason
    this.loggedMessage = options.loggedMessage
    this.fault = options.fault ?? FAULTS[code]
  }
}

/** A client's connection has ended, rather than the call: UNAVAILABLE, which a server itself may answer in any words. */
export class ConnectionLost extends AgentError {
  constructor(message: string, cause?: unknown) {
    super('UNAVAILABLE', message, { cause })
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** The errno name (`ENOENT`, …) of an {@link AgentError} or of an error of Node. */
export function errnoOf(error: unknown): string | undefined {
  if (error instanceof AgentError) return error.errno
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code
  return undefined
}
