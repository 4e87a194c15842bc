import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import type { Session } from '../../../src/client/open-session.ts'
import { Interruptions } from '../../../src/client/terminal/interruptions.ts'
import { type Context, Values } from '../../../src/ctl/command.ts'
import { run } from '../../../src/ctl/commands/containers/run.ts'
import { WaitProcessResponse } from '../../../src/gen/agent.ts'

/** A session with an agent whose processes exit with 7; the methods of `failures` fail. */
function sessionWith(failures: Readonly<Record<string, AgentError>>): Session {
  return {
    call: async (_service: string, method: string) => {
      if (failures[method] !== undefined) throw failures[method]
      if (method === 'WaitProcess') return WaitProcessResponse.encode({ status: 7 }).finish()
      return new Uint8Array()
    },
    close: () => {},
    closed: new Promise(() => {}),
  }
}

async function ranWith(session: Session) {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
  const options = new Map([
    ['rootfs', ['/root']],
    ['id', ['c1']],
  ])
  const context: Context = {
    commands: [],
    values: new Values(options, new Map([['PROGRAM', ['true']]])),
    env: {},
    io: { stdin, stdout, stderr },
    output: 'text',
    colors: false,
    timeoutMs: undefined,
    interruptions: new Interruptions(),
    signal: neverAborted,
    session: async () => session,
    dial: () => Promise.reject(new Error('not called')),
    dialPort: () => Promise.reject(new Error('not called')),
    runLine: () => Promise.reject(new Error('not called')),
  }
  const outcome = await run(context).catch((error: unknown) => String(error))
  stderr.end()
  return { outcome, stderr: await text(stderr) }
}

const refusal = new AgentError('DEADLINE_EXCEEDED', 'remove container c1: processes (5) not ended')
const LEFT =
  'agent-ctl: container c1 is left: RemoveContainer: DEADLINE_EXCEEDED: remove container c1: processes (5) not ended\n'

describe('agent-ctl run', () => {
  it('ends with the status of the program', async () => {
    expect(await ranWith(sessionWith({}))).toEqual({ outcome: 7, stderr: '' })
  })

  it('says that it could not remove its container, and ends as its program', async () => {
    expect(await ranWith(sessionWith({ RemoveContainer: refusal }))).toEqual({ outcome: 7, stderr: LEFT })
  })

  it('reports that beside the failure that it ends with', async () => {
    const StartContainer = new AgentError('INTERNAL', 'no program')
    const { outcome, stderr } = await ranWith(sessionWith({ StartContainer, RemoveContainer: refusal }))
    expect(stderr).toBe(LEFT)
    expect(outcome).toMatch(/StartContainer: INTERNAL: no program/)
  })
})
