import type { Writable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { writeWhole } from '../../../client/stdio.ts'
import { Process_Role } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context } from '../../command.ts'

type Introspection = Awaited<ReturnType<typeof introspectionCalls>>

/** How often --follow asks for more. */
const FOLLOW_MS = 250

/** `agent-ctl logs [OPTIONS] CONTAINER [PROCESS]`. */
export async function run(context: Context): Promise<undefined> {
  const { io, values } = context
  const introspection = await introspectionCalls(context)
  const containerId = values.argument('CONTAINER')
  const process = { containerId, execId: values.argument('PROCESS') }
  const { hasTerminal, ended } = await stateOf(introspection, process)
  const streams = [{ stream: 'stdout', target: io.stdout, offset: 0n }]
  // A terminal has one stream.
  if (!hasTerminal) streams.push({ stream: 'stderr', target: io.stderr, offset: 0n })
  const copy = async () => {
    for (const each of streams) each.offset = await copyNew(introspection, process, each, io.stderr)
  }
  await copy()
  for (let isOver = ended || !values.flag('follow'); !isOver; ) {
    await delay(FOLLOW_MS, undefined, { signal: context.signal })
    isOver = (await stateOf(introspection, process)).ended
    try {
      // Also when it has just ended, for what it wrote before.
      await copy()
    } catch (error) {
      // The agent has forgotten it, because its status was asked for.
      if (isOver && error instanceof CommandFailure) return
      throw error
    }
  }
}

/** Copies what is new since the offset, and returns the next one. */
async function copyNew(
  introspection: Introspection,
  process: { readonly containerId: string; readonly execId: string },
  { offset, stream, target }: { readonly offset: bigint; readonly stream: string; readonly target: Writable },
  stderr: Writable,
): Promise<bigint> {
  const kept = await introspection.readOutput({ ...process, stream, offset })
  if (kept.offset > offset)
    stderr.write(`agent-ctl: ${kept.offset - offset} bytes of ${stream} are not kept any more\n`)
  if (kept.data.length > 0) await writeWhole(target, kept.data)
  return kept.offset + BigInt(kept.data.length)
}

/** A process that the agent has forgotten has ended. */
async function stateOf(
  introspection: Introspection,
  { containerId, execId }: { readonly containerId: string; readonly execId: string },
): Promise<{ readonly hasTerminal: boolean; readonly ended: boolean }> {
  try {
    const { processes } = await introspection.listProcesses({ containerId })
    const role = execId === '' ? Process_Role.INIT : Process_Role.EXEC
    const found = processes.find((each) => each.role === role && each.execId === execId)
    return {
      hasTerminal: found?.hasTerminal ?? false,
      ended: found?.exitStatus !== undefined || found === undefined,
    }
  } catch (error) {
    if (error instanceof CommandFailure) return { hasTerminal: false, ended: true }
    throw error
  }
}
