import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { agentCommand } from '../../test/support/host/agent-process.ts'
import { benchEnvironment } from './figure.ts'

/** Starts an agent below vminit. Resolves when the agent listens, with the milliseconds from vminit's start. */
export async function startListening(
  installed: string,
  socket: string,
): Promise<{ readonly vminit: ChildProcess; readonly ms: number }> {
  const [program, ...words] = agentCommand(
    installed,
    ['--server-addr', `unix://${socket}`],
    ['echo prepared'],
  )
  const vminit = spawn(program, words, { env: benchEnvironment(), stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(vminit, 'exit').then(([status]) => {
    throw new Error(`vminit ended with ${status}`)
  })
  let begin = 0
  const listening = async () => {
    for await (const line of createInterface(vminit.stdout)) {
      if (line === 'prepared') begin = performance.now()
      else if (line.includes('"listening"')) return
    }
  }
  await Promise.race([listening(), ended])
  ended.catch(() => {})
  const ms = performance.now() - begin
  vminit.stdout.resume()
  return { vminit, ms }
}
