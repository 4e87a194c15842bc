import { Instance } from '../../gen/microvm/instance/v1/instance.ts'
import { argument, changeInstance, type MachineContext, timeoutMs } from './command.ts'
import { readMessage } from './read-message.ts'

/** Takes what `inspect --json` prints; what the daemon itself says of an instance is ignored. */
export async function run(context: MachineContext): Promise<undefined> {
  const { properties, specification } = await readMessage(context, 'Instance', Instance)
  const shown = properties?.key ?? argument(context, 'FILE')
  await changeInstance(context, `making ${shown}`, (calls) =>
    calls.ensureInstance({ properties, specification }, { timeoutMs: timeoutMs(context) }),
  )
}
