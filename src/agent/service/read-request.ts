import type { LogFields } from '../../base/log.ts'
import type { StoredBytes } from '../../base/stored-bytes.ts'
import { undecodable } from '../../rpc/count-elements.ts'
import type { OpenCall } from './calls-in-flight.ts'
import type { WrapperContext } from './context.ts'
import type { MessageType } from './rpc.ts'

/** Data that is in a file is read when something looks at the field, such as a rule of the policy. */
export function decodeRequest<Request>(
  type: MessageType<Request>,
  payload: Uint8Array,
  data: StoredBytes | undefined,
): Request {
  let request: Request
  try {
    request = type.decode(payload)
  } catch (error) {
    throw undecodable(error)
  }
  if (data !== undefined) Object.defineProperty(request, 'data', { get: () => data.read(), enumerable: true })
  return request
}

/** Lets the call tell which container it is about. */
export function named<Request>(open: OpenCall, request: Request): Request {
  open.ids = idsOf(request)
  if (typeof request !== 'object' || request === null || !('containerId' in request)) return request
  if (typeof request.containerId === 'string') open.containerId = request.containerId
  return request
}

/** The request of an earlier agent names its container by the present id from here on. */
export function bringUpToDate(names: WrapperContext['names'], request: unknown, open: OpenCall): void {
  const { number = 0n } = open.incoming
  if (typeof request === 'object' && request !== null) names.bringUpToDate(number, request)
  named(open, request)
}

/** The ids for the log line, which never contains environment, arguments or data. */
function idsOf(request: unknown): LogFields {
  if (typeof request !== 'object' || request === null) return {}
  return {
    containerId: 'containerId' in request ? textOf(request.containerId) : undefined,
    execId: 'execId' in request ? textOf(request.execId) : undefined,
    sandboxId: 'sandboxId' in request ? textOf(request.sandboxId) : undefined,
  }
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value.slice(0, 128) : undefined
}
