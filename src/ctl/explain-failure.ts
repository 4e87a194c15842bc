import { AgentError } from '../base/errors.ts'
import { didYouMean } from '../base/suggest.mjs'
import type { Session } from '../client/open-session.ts'
import type { Capability } from '../gen/microvm/agent/v1/introspection.ts'
import { clientFor } from '../rpc/client.ts'
import type { Introspection } from './clients.ts'

/** The features that calls need, as GetCapabilities names them. */
const FEATURES: Readonly<Record<string, string>> = { ReadOutput: 'output again', SetPolicy: 'policy' }

/** The codes of a call whose feature is missing. */
const LACKING: readonly string[] = ['FAILED_PRECONDITION', 'NOT_FOUND']

/** The agent may hang. */
const ASKING = { timeoutMs: 2000 } as const

const MOST_NAMED = 8

/** Adds the cause to errors of `session`; `asked` is a session with the same agent. */
export function explaining(session: Session, asked: Session): Session {
  return {
    close: () => session.close(),
    closed: session.closed,
    call: async (service, method, payload, options) => {
      try {
        return await session.call(service, method, payload, options)
      } catch (error) {
        if (!(error instanceof AgentError)) throw error
        // An agent that cannot be asked leaves its own error.
        const text = await explanation(asked, { service, method, payload }, error).catch(() => undefined)
        throw text === undefined ? error : new AgentError(error.code, text, { cause: error })
      }
    },
  }
}

interface FailedCall {
  readonly service: string
  readonly method: string
  readonly payload: Uint8Array
}

async function explanation(
  asked: Session,
  call: FailedCall,
  { code, message }: AgentError,
): Promise<string | undefined> {
  const feature = FEATURES[call.method]
  const isLacking = feature !== undefined && LACKING.includes(code)
  const isUnknown = /^invalid container id$/i.test(message)
  if (!isLacking && !isUnknown) return undefined
  const { IntrospectionDefinition } = await import('../gen/microvm/agent/v1/introspection.ts')
  const introspection = clientFor(IntrospectionDefinition, asked)
  if (isUnknown) return `${message}${await aboutContainer(introspection, await containerIdOf(call))}`
  return feature === undefined ? undefined : whyMissing(await featureNamed(introspection, feature))
}

async function containerIdOf({ service, method, payload }: FailedCall): Promise<string> {
  const [{ describedMethod }, { isObject }, { decodeJson }] = await Promise.all([
    import('./methods/schema.ts'),
    import('../client/json/fields.ts'),
    import('../client/json/to-json.ts'),
  ])
  const request = decodeJson(describedMethod(`${service}/${method}`).input, payload)
  return isObject(request) ? String(request.container_id) : ''
}

async function aboutContainer({ listContainers }: Introspection, id: string): Promise<string> {
  const { containers } = await listContainers({}, ASKING)
  const ids = containers.map(({ containerId }) => containerId)
  const more = ids.length > MOST_NAMED ? ', …' : ''
  const otherwise =
    ids.length === 0 ? 'there is none' : `want one of ${ids.slice(0, MOST_NAMED).join(', ')}${more}`
  if (id === '') return `: container_id is empty, ${otherwise}`
  const found = containers.find(({ containerId }) => containerId === id)
  return ` "${id}"${found === undefined ? didYouMean(id, ids, otherwise) : `, which is ${found.state}`}`
}

export async function featureNamed(
  { getCapabilities }: Pick<Introspection, 'getCapabilities'>,
  name: string,
): Promise<Capability | undefined> {
  const { capabilities } = await getCapabilities({}, ASKING)
  return capabilities.find((each) => each.name === name)
}

/** The reason and a remedy; undefined for an enabled feature. */
export function whyMissing(feature: Capability | undefined): string | undefined {
  if (feature === undefined || feature.enabled) return undefined
  return feature.reason.replace(/want (agent\.[^;]*)/, 'want ./microvm run --append "$1"')
}
