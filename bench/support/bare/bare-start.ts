import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { benchEnvironment } from '../figure.ts'

/** The time of a Node without a program, from its start to its end. */
export async function bareStartMs(node: string): Promise<number> {
  const begin = performance.now()
  await once(
    spawn(node, ['-e', '0'], { env: benchEnvironment(), stdio: ['ignore', 'pipe', 'inherit'] }),
    'exit',
  )
  return performance.now() - begin
}
