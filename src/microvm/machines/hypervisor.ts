import { resolve } from 'node:path'
import packageJson from '../../../package.json' with { type: 'json' }
import { jsonLogger } from '../../base/log.ts'
import { buildAgent } from '../../build/agent.ts'
import { Instance } from '../../gen/microvm/instance/v1/instance.ts'
import { NO_CONFIGURATION, readConfiguration } from '../../host/service/configuration.ts'
import { runHypervisor } from '../../host/service/hypervisor/run-hypervisor.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import type { MachineContext } from './command.ts'
import { documentOf, readInput, readMessageOf } from './read-message.ts'

const DEFAULT_GRACE_SECONDS = 30
const DEFAULT_WAIT_SECONDS = 600

/** The machine has ended, and neither the guest nor a signal has asked for that. */
const ENDED_BADLY = 1

/** Runs the machine of VM_SPEC until it has ended. The log goes to stderr. */
export async function run(context: MachineContext): Promise<number | undefined> {
  const { env, interruptions, reporter, stdio, values } = context
  const path = given(context, 'machine', 'FILE')
  const stateFolder = resolve(given(context, 'state', 'DIR'))
  const input = await readInput(context, 'machine')
  const machine =
    (await documentOf(input))?.text ?? (await readMessageOf(input, 'Instance', Instance)).specification
  if (machine === undefined)
    throw new UsageError(`${path}: no specification, want {"specification": {…}} as for ensure`)
  // Its addon locks the disk that gets an image.
  await buildAgent()
  const [stop, kill] = [new AbortController(), new AbortController()]
  interruptions.forwardNext(() => {
    stop.abort()
    interruptions.forwardNext(() => kill.abort())
  })
  const [listen, maxImageMib, config] = ['listen', 'max-image-size', 'config'].map((name) => values.get(name))
  const configuration = config === undefined ? NO_CONFIGURATION : await readConfiguration(resolve(config))
  const { reason } = await runHypervisor({
    vmSpec: env.VM_SPEC,
    machine,
    stateFolder,
    listen: listen === undefined ? undefined : resolve(listen),
    peers: values.get('peer')?.split(',') ?? [],
    maxImageBytes: maxImageMib === undefined ? undefined : Number(maxImageMib) * 2 ** 20,
    configuration,
    waitMs: Number(values.get('wait') ?? DEFAULT_WAIT_SECONDS) * 1000,
    graceMs: Number(values.get('grace') ?? DEFAULT_GRACE_SECONDS) * 1000,
    acceleration: env.MICROVM_ACCEL,
    log: jsonLogger({
      sink: (line) => stdio.stderr.write(line),
      level: () => 'info',
      version: packageJson.version,
      pid: process.pid,
      program: { name: 'microvm', source: 'microvm' },
    }),
    stop: stop.signal,
    kill: kill.signal,
  })
  if (reason === undefined) return undefined
  reporter.failure(`hypervisor: ${reason}`, [])
  return ENDED_BADLY
}

function given({ values }: MachineContext, name: string, value: string): string {
  const text = values.get(name)
  if (text === undefined)
    throw new UsageError(`hypervisor: no --${name} ${value}, see ./microvm hypervisor --help`)
  return text
}
