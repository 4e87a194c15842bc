import { randomBytes } from 'node:crypto'
import { expect, vi } from 'vitest'
import { messageOf } from '../../../src/base/errors.ts'
import { Identity } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { podOf } from '../containers/pod.ts'
import { inNamespaceOf, leftoversOf, NOTHING_LEFT } from '../host/agent-pod.ts'
import type { AgentProcess } from '../host/agent-process.ts'
import { listenForMany } from '../host/host-ports.ts'
import { ResumingReader } from '../host/resuming-host.ts'

const ID = 'lost'
const PORT = 7201
const ROUNDS = 3
const LINES = 4000
const ALL = Array.from({ length: LINES }, (_, line) => `${line + 1}\n`).join('')
/** The clock is not told, because it is this machine's. */
const FAILS = ['clock']

/** What a host does around a save and a restore, with a stream over a port that loses nothing. */
export async function plannedLosses(started: AgentProcess, root: string, folder: string): Promise<void> {
  const { agent, introspection, lifecycle } = started
  const listening = await listenForMany(`${folder}/port_${PORT}`)
  const reader = new ResumingReader()
  // An agent may die after it has dialled.
  const isInVain = (error: unknown) => {
    if (!messageOf(error).startsWith('it ended after')) throw error
  }
  const reading = (async () => {
    while (reader.total < ALL.length) await reader.read(await listening.next()).catch(isInVain)
  })()
  // Its failure shows when it is awaited.
  reading.catch(() => {})
  try {
    await agent.createSandbox({ sandboxId: 'pod', hostname: 'podname' })
    const pod = podOf(agent, root)
    const script = `i=0; while read line; do for n in $(seq ${LINES / (ROUNDS + 1)}); do i=$((i+1)); echo $i; done >&3; echo ok; done`
    const init = await pod.run(ID, ['sh', '-c', 'read line; exit 5'])
    const counting = await pod.add(ID, 'counting', ['sh', '-c', `exec 3>&2; ${script}`], {
      ports: { stderrPort: PORT },
    })
    const count = async () => {
      await counting.write('go\n')
      await counting.readUntil('ok\n')
    }
    for (let round = 1; round <= ROUNDS; round++) {
      await count()
      const { streams } = await lifecycle.detach({ timeoutMs: 60_000 })
      expect(streams.map(({ port, stream }) => ({ port, stream }))).toEqual([
        { port: PORT, stream: 'stderr' },
      ])
      await lifecycle.attach({})
      const generation = `restore ${round}`
      const identity = Identity.fromPartial({ hostname: `clone-${round}` })
      const { number } = await lifecycle.resumed({ generation, seed: randomBytes(32), identity })
      const told = await lifecycle.getResume({ number, timeoutMs: 60_000 })
      expect(told).toMatchObject({ generation, state: 'ready', randomness: 'renewed' })
      expect(told.steps.filter(({ state }) => state === 'failed').map(({ name }) => name)).toEqual(FAILS)
      expect(await lifecycle.resumed({ generation })).toEqual({ number })
      expect(inNamespaceOf(started, 'nsenter', '--uts=/run/sandbox-ns/uts', 'hostname')).toBe(
        `clone-${round}\n`,
      )
    }
    await count()
    await counting.closeStdin()
    expect(await counting.wait()).toBe(0)
    await reading
    expect(reader.bytes.toString() === ALL).toBe(true)
    await init.write('\n')
    expect(await init.wait()).toBe(5)
    await pod.remove(ID)
    expect((await introspection.listContainers({})).containers).toEqual([])
  } finally {
    listening.close()
  }
}

export async function nothingOfLosses(started: AgentProcess): Promise<void> {
  await vi.waitFor(() => expect(leftoversOf(started, ID)).toEqual(NOTHING_LEFT), { timeout: 20_000 })
}
