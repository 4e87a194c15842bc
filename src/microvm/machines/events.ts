import { describedMessage } from '../../client/json/described-types.ts'
import { decodeJson } from '../../client/json/to-json.ts'
import { plainText } from '../../client/output/text.ts'
import {
  InstanceChange,
  InstanceServiceDefinition,
  WatchInstancesRequest,
  WatchInstancesResponse,
} from '../../gen/microvm/instance/v1/instance.ts'
import { type MachineContext, print, printJson } from './command.ts'

export async function run(context: MachineContext): Promise<undefined> {
  const { signal, values } = context
  const daemon = await context.daemon()
  const { fullName, methods } = InstanceServiceDefinition
  const call = daemon.stream(fullName, methods.watchInstances.name)
  const cancel = () => call.cancel()
  signal.addEventListener('abort', cancel, { once: true })
  const request = { after: BigInt(values.get('after') ?? 0), once: !values.has('follow') }
  await call.send(WatchInstancesRequest.encode(request).finish())
  call.end()
  const change = describedMessage('microvm.instance.v1.InstanceChange')
  try {
    for await (const answer of call.answers) {
      const { changes, lost } = WatchInstancesResponse.decode(answer)
      if (lost > 0n) context.reporter.progress(`${lost} changes before these are kept no longer`)
      for (const each of changes) {
        if (values.has('json'))
          await printJson(context, decodeJson(change, InstanceChange.encode(each).finish()))
        else await print(context, `${lineOf(each)}\n`)
      }
    }
  } catch (error) {
    signal.throwIfAborted()
    throw error
  } finally {
    signal.removeEventListener('abort', cancel)
  }
}

function lineOf({ key, kind, sequence, text, timeMs }: InstanceChange): string {
  return plainText(`${new Date(Number(timeMs)).toISOString()}  ${sequence}  ${key}  ${kind}  ${text}`)
}
