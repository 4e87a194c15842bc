import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { buildNative } from '../../../src/build/native.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { FakeStreams } from '../../support/fakes/streams/fake-streams.ts'
import { FakeDescriptors } from '../../support/fakes/supervisor/fake-descriptors.ts'
import { FakeExits, FakeSupervisor } from '../../support/fakes/supervisor/fake-exits.ts'
import { COMMANDS, type Command, exitSteps, foundSteps, goneSteps, storeSteps } from './supervisor-steps.ts'

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
  return { status: 0, lines: [...lines, ...foundSteps(descriptors, streams)] }
}

describe.each([
  ['the channel to vminit', () => runBelowVminit('os-agent-below-vminit.ts')],
  ['the fakes of vminit', runWithFakes],
])('%s', (_name, run) => {
  it('reports exits, and keeps descriptors for the next agent', async () => {
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
    expect(status).toBe(0)
  })
})

/** Each agent gives the command, then ends by the code or the signal; agent number `runs` ends with 0. */
interface Agents {
  readonly command: Command
  readonly end: '2' | '9' | 'SIGKILL'
  readonly runs: number
}

async function endWithFake({ command, end, runs }: Agents): Promise<{ status: number; lines: string[] }> {
  const supervisor = new FakeSupervisor()
  for (let run = 1; ; run += 1) {
    if (run < runs) await COMMANDS[command](supervisor)
    const status = supervisor.agentEnds(run === runs ? 0 : end === 'SIGKILL' ? 137 : Number(end))
    if (status !== undefined) return { status, lines: Array.from({ length: run }, () => 'agent') }
  }
}

async function goneWithFake(): Promise<{ lines: readonly string[] }> {
  const supervisor = new FakeSupervisor()
  return { lines: await goneSteps(supervisor, () => supervisor.kill()) }
}

describe.each([
  {
    name: 'the supervisor at the channel to vminit',
    run: ({ command, end, runs }: Agents) => runBelowVminit('os-ending-agent.ts', command, end, `${runs}`),
    outlive: () => runBelowVminit('os-ending-agent.ts', 'outlive'),
  },
  { name: 'FakeSupervisor', run: endWithFake, outlive: goneWithFake },
])('$name', ({ run, outlive }) => {
  it.each<Agents & { readonly status: number; readonly lives: number }>([
    { command: 'nothing', end: '2', runs: 3, status: 2, lives: 1 },
    { command: 'nothing', end: '9', runs: 9, status: 9, lives: 6 },
    { command: 'gateOpened', end: '9', runs: 7, status: 0, lives: 7 },
    { command: 'powerOff', end: 'SIGKILL', runs: 2, status: 0, lives: 2 },
    { command: 'endWithAgent', end: 'SIGKILL', runs: 2, status: 3, lives: 1 },
    { command: 'endWithAgent', end: '2', runs: 2, status: 3, lives: 1 },
  ])(
    '$command: status $status after $lives agents that end by $end',
    async ({ status, lives, ...agents }) => {
      const ended = await run(agents)
      expect(ended).toEqual({ status, lines: Array.from({ length: lives }, () => 'agent') })
    },
  )

  it('asks for a stop and takes no command once vminit is gone', async () => {
    const { lines } = await outlive()
    expect(lines).toEqual(['asked to stop: 0', 'refused: AgentError: vminit is gone'])
  })
})
