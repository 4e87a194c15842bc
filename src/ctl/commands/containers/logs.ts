import type { Writable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../../../base/errors.ts'
import { type ProcessKey, writeWhole } from '../../../client/container/stdio.ts'
import type { ReadOutputResponse } from '../../../gen/microvm/agent/v1/introspection.ts'
import { type Introspection, introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context } from '../../command.ts'
import { findProcess } from './attach.ts'

const FOLLOW_MS = 250

export async function run(context: Context): Promise<undefined> {
  const { io, values } = context
  const introspection = await introspectionCalls(context)
  const containerId = values.argument('CONTAINER')
  const process = { containerId, execId: values.argument('PROCESS') }
  const { hasTerminal, ended } = await stateOf(introspection, process)
  const streams = [new Followed('stdout', io.stdout)]
  // A terminal has one stream.
  if (!hasTerminal) streams.push(new Followed('stderr', io.stderr))
  let isFound = false
  const copy = async () => {
    for (const each of streams) {
      await each.copyNew(introspection, process, io.stderr)
      isFound = true
    }
  }
  try {
    await copy()
    for (let isOver = ended || !values.flag('follow'); !isOver; ) {
      await delay(FOLLOW_MS, undefined, { signal: context.signal })
      isOver = (await stateOf(introspection, process)).ended
      // Copies once more after the end, for the last output.
      await copy()
    }
  } catch (error) {
    // The owner has collected the status, or has removed the container.
    if (!isFound || !IS_GONE.includes(codeOf(error) ?? '')) throw error
    io.stderr.write('agent-ctl: the process was forgotten before its last output was read\n')
  }
}

/** The codes for an unknown process and an unknown container. */
const IS_GONE: readonly string[] = ['NOT_FOUND', 'INVALID_ARGUMENT']

function codeOf(error: unknown): string | undefined {
  return error instanceof CommandFailure && error.cause instanceof AgentError ? error.cause.code : undefined
}

class Followed {
  readonly #stream: 'stdout' | 'stderr'
  readonly #target: Writable
  #offset = 0n
  /** The agent's restarts when `#offset` was read. */
  #restarts: number | undefined

  constructor(stream: 'stdout' | 'stderr', target: Writable) {
    this.#stream = stream
    this.#target = target
  }

  async copyNew(introspection: Introspection, process: ProcessKey, stderr: Writable): Promise<void> {
    const stream = this.#stream
    let kept = await this.#read(introspection, process)
    if (this.#restarts !== undefined && kept.agentRestarts !== this.#restarts) {
      stderr.write(
        `agent-ctl: the agent was started again: some of ${stream} may be missing, or come again\n`,
      )
      this.#offset = 0n
      kept = await introspection.readOutput({ ...process, stream, offset: 0n })
    } else if (kept.offset > this.#offset) {
      stderr.write(`agent-ctl: ${kept.offset - this.#offset} bytes of ${stream} are not kept any more\n`)
    }
    this.#restarts = kept.agentRestarts
    this.#offset = kept.offset + BigInt(kept.data.length)
    if (kept.data.length > 0) await writeWhole(this.#target, kept.data)
  }

  async #read(introspection: Introspection, process: ProcessKey): Promise<ReadOutputResponse> {
    const request = { ...process, stream: this.#stream }
    try {
      return await introspection.readOutput({ ...request, offset: this.#offset })
    } catch (error) {
      // A restarted agent counts from 0 again, and refuses a higher offset.
      if (this.#offset === 0n || codeOf(error) !== 'INVALID_ARGUMENT') throw error
      return await introspection.readOutput({ ...request, offset: 0n })
    }
  }
}

/** A process that the agent has forgotten has ended. */
async function stateOf(
  introspection: Introspection,
  process: ProcessKey,
): Promise<{ readonly hasTerminal: boolean; readonly ended: boolean }> {
  try {
    const found = await findProcess(introspection, process)
    const ended = found === undefined || found.exitStatus !== undefined
    return { hasTerminal: found?.hasTerminal ?? false, ended }
  } catch (error) {
    if (codeOf(error) === 'NOT_FOUND') return { hasTerminal: false, ended: true }
    throw error
  }
}
