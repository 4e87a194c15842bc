import { resolve } from 'node:path'
import packageJson from '../../../package.json' with { type: 'json' }
import { jsonLogger } from '../../base/log.ts'
import { defaultStateFolder } from '../../client/daemon/daemon-socket.mjs'
import { NO_CONFIGURATION, readConfiguration } from '../../host/service/configuration.ts'
import { startDaemon } from '../../host/service/daemon.ts'
import type { MachineContext } from './command.ts'

/** Keeps machines until a signal comes. The log goes to stderr. */
export async function run({ env, interruptions, stdio, values }: MachineContext): Promise<undefined> {
  const signal = new Promise<void>((ended) => interruptions.forwardNext(() => ended()))
  const [config, socket] = [values.get('config'), values.get('socket')]
  const log = jsonLogger({
    sink: (line) => stdio.stderr.write(line),
    level: () => 'info',
    version: packageJson.version,
    pid: process.pid,
    program: { name: 'microvm', source: 'microvm' },
  })
  const daemon = await startDaemon({
    stateFolder: resolve(values.get('state') ?? defaultStateFolder(env)),
    socket: socket === undefined ? undefined : resolve(socket),
    configuration: config === undefined ? NO_CONFIGURATION : await readConfiguration(config),
    mock: values.has('mock'),
    rebuild: values.has('rebuild'),
    acceleration: env.MICROVM_ACCEL,
    log,
  })
  await signal
  await daemon.close()
}
