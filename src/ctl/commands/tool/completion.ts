import type { Tool } from '../../../client/completion.mjs'
import { completionFor, SHELLS } from '../../../client/completion.mjs'
import { runningInDaemon } from '../../../client/daemon/daemon-machines.ts'
import { daemonSocket } from '../../../client/daemon/daemon-socket.mjs'
import { machinesFolder, runningMachines } from '../../../client/machines/entry.ts'
import { introspectionCalls } from '../../clients.ts'
import type { Command, Context } from '../../command.ts'
import { GLOBAL_OPTIONS } from '../../command-line/options.ts'
import { METHODS } from '../../methods/method-names.ts'
import { print } from '../../output/print.ts'

export async function run(context: Context): Promise<undefined> {
  const what = context.values.argument('SHELL')
  if (what === 'containers') return await printLines(context, await containerIds(context))
  if (what === 'machines') {
    const { env, signal } = context
    const names = runningMachines(machinesFolder(env)).map(({ name }) => name)
    const keys = (await runningInDaemon(daemonSocket(undefined, env), signal)).filter(isPlainWord)
    return await printLines(
      context,
      [...names, ...keys].map((name) => `microvm://${name}`),
    )
  }
  const shell = SHELLS.find((name) => name === what) ?? 'bash'
  const methods = METHODS.map(({ method }) => method)
  await print(context, completionFor(shell, completedTool(context.commands, methods)))
}

export function completedTool(commands: readonly Command[], calls: readonly string[]): Tool {
  return { name: 'agent-ctl', globals: GLOBAL_OPTIONS, commands, calls, goesOnWithFiles: false }
}

/** bash expands other words, and would run a command that a guest gives as an id. */
export function isPlainWord(word: string): boolean {
  return /^[\w.-]+$/.test(word)
}

async function containerIds(context: Context): Promise<readonly string[]> {
  const introspection = await introspectionCalls(context)
  const { containers } = await introspection.listContainers({})
  return containers.map(({ containerId }) => containerId).filter(isPlainWord)
}

async function printLines(context: Context, lines: readonly string[]): Promise<undefined> {
  await print(context, lines.map((line) => `${line}\n`).join(''))
}
