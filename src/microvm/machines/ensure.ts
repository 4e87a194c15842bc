import { Instance } from '../../gen/microvm/instance/v1/instance.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import { changeInstance, type MachineContext, timeoutMs } from './command.ts'
import { documentOf, type Input, readInput, readMessageOf } from './read-message.ts'

/** Takes a document, and what `inspect --json` prints; what the daemon itself says of an instance is ignored. */
export async function run(context: MachineContext): Promise<undefined> {
  const input = await readInput(context, 'FILE')
  const request = await requestOf(input, context.values.get('key'))
  await changeInstance(context, `making ${request.properties?.key ?? input.shown}`, (calls) =>
    calls.ensureInstance(request, { timeoutMs: timeoutMs(context) }),
  )
}

async function requestOf(input: Input, wanted: string | undefined) {
  const given = await documentOf(input)
  if (given !== undefined) {
    const { labels, name, text: document } = given
    const key = wanted ?? name
    if (key === undefined)
      throw new UsageError(`${input.shown}: metadata.name: missing, want it or --key KEY`)
    return { properties: { key, labels }, document }
  }
  const { properties, specification, configurations } = await readMessageOf(input, 'Instance', Instance)
  const own = wanted === undefined ? properties : { ...properties, key: wanted }
  return configurations === undefined
    ? { properties: own, specification }
    : { properties: own, document: configurations.document }
}
