import { daemonSocket } from '../../client/daemon/daemon-socket.mjs'
import { doctor } from '../doctor/doctor.mjs'
import type { MachineContext } from './command.ts'

export async function run({ env, stdio, values }: MachineContext): Promise<number> {
  const socket = daemonSocket(values.get('socket'), env)
  return await doctor({ json: values.has('json'), socket, print: (text) => stdio.stdout.write(text) })
}
