import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { buildNative } from '../../../src/build/native.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { FakeStreams } from '../../support/fakes/streams/fake-streams.ts'
import { FakeDescriptors } from '../../support/fakes/supervisor/fake-descriptors.ts'
import { FakeExits } from '../../support/fakes/supervisor/fake-exits.ts'
import { exitSteps, foundSteps, storeSteps } from './supervisor-steps.ts'

async function runBelowVminit(
  program: string,
  ...args: string[]
): Promise<{ status: number; lines: string[] }> {
  const { vminit, addon } = await buildNative()
  const command = ['--', process.execPath, join(import.meta.dirname, program), addon, ...args]
  const wrapper = spawn(vminit, command, { stdio: ['ignore', 'pipe', 'inherit'] })
  const chunks: Buffer[] = []
  wrapper.stdout.on('data', (chunk: Buffer) => chunks.push(chunk))
  const [status] = await once(wrapper, 'close')
  return { status, lines: Buffer.concat(chunks).toString().trim().split('\n') }
}

/** The same steps with {@link FakeExits} and {@link FakeDescriptors}. */
async function runWithFakes(): Promise<{ status: number; lines: string[] }> {
  const streams = new FakeStreams()
  const [exits, descriptors] = [new FakeExits(new FakeClock()), new FakeDescriptors(streams)]
  const startOrphan = async (code: number) => {
    const pid = 100 + code
    return { pid, release: async () => exits.exit(pid, { code }) }
  }
  const lines = [
    ...(await exitSteps(exits, startOrphan, (pid) => exits.exit(pid, { signal: 15 }))),
    ...(await storeSteps(descriptors, streams)),
  ]
  descriptors.restart()
  return { status: 42, lines: [...lines, ...foundSteps(descriptors, streams)] }
}

describe.each([
  ['the channel to vminit', () => runBelowVminit('os-agent-below-vminit.ts')],
  ['the fakes of vminit', runWithFakes],
])('%s', (_name, run) => {
  it('reports exits, keeps descriptors for the next agent, and takes the status to end with', async () => {
    const { status, lines } = await run()
    expect(lines).toEqual([
      'code 9, ended before false',
      'signal 15, code 143',
      'ended true, asked for late: 3',
      'after the end of the watch: 5',
      'refused: AgentError: exit watch for pid PID: closed',
      'not taken: 0',
      'taken: undefined',
      'handed over: true,',
      'found: p1-reading,p1-writing',
      'read: kept',
      'left: 0',
    ])
    expect(status).toBe(42)
  })
})
